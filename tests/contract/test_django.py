"""Keys of Django's models, on every database: one process tells a whole story, and each test reads a chapter of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment

pytest.importorskip("django")


SETTINGS = """
from project.settings import *
DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"
SILENCED_SYSTEM_CHECKS = ["models.W042"]
"""


@pytest.fixture(scope="module")
def stories() -> dict[str, subprocess.CompletedProcess[str]]:
    return {}


@pytest.fixture
def story(
    kind: str, new_database: Callable[[str], str], stories: dict[str, subprocess.CompletedProcess[str]], tmp_path: Path
) -> dict[str, Any]:
    """What `support.applications.django_story` found, once for each database."""
    if kind not in stories:
        url = new_database(kind)
        (tmp_path / "told.py").write_text((AS_MYSQLDB if kind in {"mysql", "mariadb"} else "") + SETTINGS)
        command = [sys.executable, "-m", "support.applications.django_story", str(tmp_path)]
        stories[kind] = subprocess.run(
            command, env=environment(tmp_path, url, "told"), capture_output=True, text=True, check=False, timeout=120
        )
    done = stories[kind]

    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_migrations_are_stable_and_make_a_plain_bigint(story):
    found = story["migrations"]

    assert found["types"] == ["bigint", "bigint"]
    assert found["written"] == ["primary_key", "serialize"]
    assert found["column"] == "BigIntegerField"
    assert found["counters"] == []


def test_fixtures_keep_their_ids_and_the_tag_goes_on_above_them(story):
    assert story["fixtures"] == {"loaded": [10_000_000], "next": 10_000_001, "claimed": 10_001_000}


def test_a_new_object_is_saved_by_one_statement(story):
    found = story["saving"]

    assert found["before"] is None
    assert found["saved"] == ["INSERT"]
    assert found["again"] == ["UPDATE"]
    assert found["clash"] == "refused"
    assert found["given"] == 77


def test_bulk_create_sets_ids_without_a_statement_for_each(story):
    found = story["bulk"]

    assert len(set(found["ids"])) == found["stored"] == 600
    assert found["ids"] == sorted(found["ids"])
    assert found["statements"].count("INSERT") == 6
    assert len(found["statements"]) <= 8  # BEGIN and COMMIT, where they are statements
    assert found["of_parents"]


def test_get_or_create_and_a_rollback(story):
    found = story["queries"]

    assert found["made"] == [True, False]
    assert found["same"]
    assert found["other"]
    assert found["burnt"][1] > found["burnt"][0]


def test_inheritance_many_to_many_and_the_default_field(story):
    found = story["inheritance"]

    assert found["tags"] == ["place", "shelf"]
    assert found["joining"] == "BigAutoField"
    assert found["ids"] == [1, 2, 2]
    assert found["through"] == found["shelf"] == [1, 2]


def test_a_table_that_the_database_numbered_goes_on_above_its_rows(story, kind):
    assert story["inheritance"]["taken"] == [31, 31]
    assert story["inheritance"]["counters"] == [int(kind == "postgres"), 0]


def test_models_of_one_tag_share_its_ids_and_none_gets_what_its_table_holds(story):
    assert story["inheritance"]["both"] == [1, 50, 51]


def test_a_tag_ends_where_its_column_does(story, kind):
    found = story["columns"]
    limit = 2**63 - 1 if kind == "sqlite" else 2**31 - 1

    assert found["limits"] == {"place": 2**63 - 1, "narrow": limit}
    assert found["types"][0] == found["types"][1]
    assert found["said"] == [
        (
            "tag 'older' has the limit 9223372036854775807, but older.id (IntegerField) holds ids only up to 2147483647"
            ": INSERTs above that will fail; lower the limit: allocator tags set older --limit 2147483647"
        )
    ] * (kind != "sqlite")


def test_the_admin_adds_and_changes_and_shows_no_field_for_the_id(story):
    found = story["admin"]

    assert found["status"] == [200, 302]
    assert not found["editable"]
    assert found["id"] in story["all"]
    assert found["changed"] == ["changed", "milk"]


def test_awaited_calls(story):
    found = story["awaited"]["ids"]

    assert len(set(found)) == 7
    assert set(found) <= set(story["all"])


def test_ids_come_from_where_the_rows_go(story, kind):
    names = {"sqlite": "shop.ids.sqlite3", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}

    assert names.get(kind, "mysql+pymysql") in story["from"]
