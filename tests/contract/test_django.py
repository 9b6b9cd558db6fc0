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
from support.distinct import distinct

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


def test_migrations_and_fixtures(story):
    """Stable, and a plain BIGINT; fixtures keep their ids or get some, and the tag goes on above them."""
    assert story["migrations"] == {
        "types": ["bigint", "bigint"],
        "written": ["primary_key", "serialize"],
        "column": "BigIntegerField",
        "counters": [],
    }
    assert story["fixtures"] == {"loaded": [10_000_000, 10_000_001], "next": 10_000_002, "claimed": 10_000_010}


def test_objects_are_saved_by_the_statements_of_keys_that_are_given_by_hand(story):
    saving, bulk, queries = story["saving"], story["bulk"], story["queries"]

    assert (saving["before"], saving["saved"], saving["again"]) == (None, ["INSERT"], ["UPDATE"])
    assert (saving["revert"], saving["given"]) == ([["UPDATE"], "reverted"], 77)
    assert distinct(bulk["ids"]) == bulk["stored"] == 600
    assert bulk["ids"] == sorted(bulk["ids"])
    assert bulk["statements"].count("INSERT") == 6
    assert len(bulk["statements"]) <= 8  # BEGIN and COMMIT, where they are statements
    assert bulk["of_parents"]
    assert (queries["made"], queries["same"]) == ([True, False], True)
    assert queries["other"]
    assert queries["burnt"][1] > queries["burnt"][0]


def test_an_upsert_leaves_no_id_that_no_row_has(story, kind):
    """The row's key or none: with a key of the object's own the row that stays may have another."""
    found = story["upserts"]

    assert found["keys"] == [None] * 4
    assert found["kept"] == [True] * (3 if kind in {"mysql", "mariadb"} else 4)


def test_an_object_whose_save_has_failed_gets_an_id_in_the_next_bulk(story):
    assert story["failing"] == {"stored": ["of Integri", "of ValueEr"], "forced": None}


def test_a_composite_key_has_an_id_of_ours(story):
    assert story["composite"] == {
        "checks": [],
        "written": {"primary_key": False},
        "statements": [["INSERT"], ["UPDATE"]],
        "keys": [[1, 1], [1, 2], [2, 3], [2, 4]],
    }


def test_inheritance_many_to_many_and_tables_that_had_rows(story, kind):
    """A table that the database numbered goes on above its rows, and models of one tag share its ids."""
    found = story["inheritance"]

    assert found["tags"] == ["place", "shelf"]
    assert found["joining"] == "BigAutoField"
    assert found["ids"] == [1, 2, 2, 3, 3]
    assert found["through"] == found["shelf"] == [1, 2]
    assert found["taken"] == [31, 31]
    assert found["counters"] == [int(kind == "postgres"), 0]
    assert found["both"] == [1, 50, 51]


def test_a_tag_ends_where_its_column_does(story, kind):
    found = story["columns"]
    limit = 2**63 - 1 if kind == "sqlite" else 2**31 - 1

    assert found["limits"] == {"place": 2**63 - 1, "narrow": limit}
    assert found["types"][0] == found["types"][1]
    assert found["said"] == [
        (
            "tag 'older' has the limit 9223372036854775807, but older.id (IntegerField) holds ids only up to 2147483647"
            ": INSERTs above that will fail; lower the limit: manage.py allocator tags set older --limit 2147483647"
        )
    ] * (kind != "sqlite")


def test_the_admin_and_awaited_calls_on_the_database_of_the_rows(story, kind):
    """The admin shows no field for the id."""
    admin, awaited = story["admin"], story["awaited"]["ids"]
    names = {"sqlite": "shop.ids.sqlite3", "postgres": "postgresql+psycopg"}

    assert (admin["status"], admin["editable"]) == ([200, 302], False)
    assert admin["id"] in story["all"]
    assert admin["changed"] == ["changed", "milk"]
    assert distinct(awaited) == 7
    assert set(awaited) <= set(story["all"])
    assert names.get(kind, "mysql+pymysql") in story["from"]
