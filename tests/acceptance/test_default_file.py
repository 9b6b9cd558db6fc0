"""A command that names no database: it says which file it uses, and only drawing or creating makes that file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from allocator.cli import main
from allocator.cli.default_file import misspelt

READING = ["tags list", "tags set order --step 5", "next order --no-create", "db check", "nodes list", "tokens list"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if "DATABASE" in name or name.startswith("ALLOCATOR_")]:
        monkeypatch.delenv(name)
    return tmp_path


def run(words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, words.split(), env=environment)


def test_the_file_that_is_made_or_used_is_said_beside_the_ids(here):
    first, second = run("next order"), run("next order")

    assert (first.stdout, second.stdout) == ("1\n", "2\n")
    assert first.stderr == (
        f"note: created {here}/allocator.db, because neither --url nor ALLOCATOR_DATABASE_URL names a database\n"
    )
    assert second.stderr.startswith(f"note: using {here}/allocator.db, because ")


def test_nothing_is_said_where_a_database_is_named_or_none_is_needed():
    for words in ("next order --url sqlite:///ids.db", "next --scheme objectid", "inspect 5"):
        assert run(words).stderr == "", words
    assert run("next order", ALLOCATOR_DATABASE_URL="sqlite:///ids.db", DATABASE_URL="x").stderr == ""


def test_what_only_reads_makes_no_file_and_says_so(here):
    for words in READING:
        for url, name in (("", "allocator"), (" --url sqlite:///other.db", "other")):
            done = run(words + url)

            assert (done.exit_code, done.stdout, list(here.iterdir())) == (1, "", []), words
            assert done.stderr == (
                f"error: there is no file {here}/{name}.db; draw an id to create it, or name another database "
                "with --url or ALLOCATOR_DATABASE_URL\n"
            )


def test_what_looks_at_a_missing_file_answers_without_making_it(here):
    for words in ("doctor", "shards list"):
        done = run(words)

        assert (done.exit_code, list(here.iterdir())) == (0, []), words
        assert f"there is no file {here}/allocator.db" in done.stdout


def test_a_variable_that_is_misspelt_is_named_and_its_value_is_not():
    misspelt = {"ALLOCATOR_DB_URL": "s3cret"}
    drawn, refused = run("next order", **misspelt), run("tags list --url sqlite:///no.db", **misspelt)

    assert "note: ALLOCATOR_DB_URL is ignored; the variable is called ALLOCATOR_DATABASE_URL\n" in drawn.stderr
    assert "s3cret" not in drawn.stderr
    assert "ALLOCATOR_DB_URL is ignored" not in refused.stderr


MISSPELT = [
    "ALLOCATOR_URL",
    "ALLOCATOR_DATABASE",
    "ALOCATOR_DATABASE_URL",
    "allocator_database_url",
    "ALLOCATOR_DATABSE_URL",
    "ALLOCATOR_DATABASE_URI",
    "ALLOCATOR_DATABASE_URL_FLIE",
]
OTHERS = ["DATABASE_URL", "ALLOCATOR_HOST", "ALLOCATOR_TOKEN", "ALLOCATOR_TEST_MYSQL_URL", "ALLOCATOR", "PATH", ""]


def test_a_typo_is_noticed_and_other_variables_are_none():
    assert [name for name in [*MISSPELT, *OTHERS] if misspelt([name])] == MISSPELT


def test_the_service_logs_it_before_anything_else(here):
    done = subprocess.run(
        [sys.executable, "-m", "allocator", "serve", "--port", "0"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[0])["message"].startswith(f"creating {here}/allocator.db, because ")
