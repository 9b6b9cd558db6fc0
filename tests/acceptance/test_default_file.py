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

READING = [
    "tags list",
    "tags set order --step 5",
    "tags repair --all",
    "next order --no-create",
    "db current",
    "db check",
    "db restored",
    "nodes list",
    "tokens list",
    "tokens revoke 1",
    "tokens rotate 1",
    "trace 5016762319896585",
]


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


def test_with_json_a_note_is_json_too(here):
    done = run("next order --json")

    assert json.loads(done.stdout) == {"tag": "order", "ids": ["1"]}
    assert list(json.loads(done.stderr)) == ["note"]


@pytest.mark.parametrize("words", ["next order --url sqlite:///ids.db", "next --scheme objectid", "inspect 5"])
def test_nothing_is_said_where_a_database_is_named_or_none_is_needed(words):
    assert run(words).stderr == ""
    assert run("next order", ALLOCATOR_DATABASE_URL="sqlite:///ids.db", DATABASE_URL="x").stderr == ""


@pytest.mark.parametrize("words", READING)
@pytest.mark.parametrize("url", ["", " --url sqlite:///other.db"])
def test_what_only_reads_makes_no_file_and_says_so(here, words, url):
    done = run(words + url)

    assert (done.exit_code, done.stdout, list(here.iterdir())) == (1, "", [])
    assert done.stderr == (
        f"error: there is no file {here}/{'other' if url else 'allocator'}.db; draw an "
        "id to create it, or name another database with --url or ALLOCATOR_DATABASE_URL\n"
    )


@pytest.mark.parametrize("words", ["doctor", "shards list"])
def test_what_looks_at_a_missing_file_answers_without_making_it(here, words):
    done = run(words)

    assert (done.exit_code, list(here.iterdir())) == (0, [])
    assert f"there is no file {here}/allocator.db" in done.stdout


@pytest.mark.parametrize("name", ["ALLOCATOR_URL", "ALLOCATOR_DB_URL", "ALLOCATOR_DATABASE", "ALOCATOR_DATABASE_URL"])
def test_a_variable_that_is_misspelt_is_named_and_its_value_is_not(name):
    drawn, refused = run("next order", **{name: "s3cret"}), run("tags list --url sqlite:///no.db", **{name: "s3cret"})

    assert f"note: {name} is ignored; the variable is called ALLOCATOR_DATABASE_URL\n" in drawn.stderr
    assert "s3cret" not in drawn.stderr
    assert f"{name} is ignored" not in refused.stderr


def test_a_refusal_names_it_too(here):
    done = run("tags list", ALLOCATOR_DB_URL="x"), run("tags list --json", ALLOCATOR_DB_URL="x")

    assert done[0].stderr.splitlines()[1].startswith("note: ALLOCATOR_DB_URL is ignored")
    assert json.loads(done[1].stderr)["notes"][0].startswith("ALLOCATOR_DB_URL is ignored")
    assert list(here.iterdir()) == []


def test_the_variable_of_a_platform_is_a_hint():
    assert (
        'DATABASE_URL is ignored; to use it, add --url "$DATABASE_URL"'
        in run("next order", DATABASE_URL="postgresql://u:s3cret@h/x").stderr
    )


@pytest.mark.parametrize(
    "name",
    ["allocator_database_url", "ALLOCATOR_DATABSE_URL", "ALLOCATOR_DATABASE_URI", "ALLOCATOR_DATABASE_URL_FLIE"],
)
def test_a_typo_is_noticed(name):
    assert misspelt([name]) == [name]


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "ALLOCATOR_HOST", "ALLOCATOR_TOKEN", "ALLOCATOR_TEST_MYSQL_URL", "ALLOCATOR", "PATH", ""]
)
def test_control_other_variables_are_none(name):
    assert misspelt([name]) == []


def test_the_service_logs_it_before_anything_else(here):
    done = subprocess.run(
        [sys.executable, "-m", "allocator", "serve", "--port", "0"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[0])["message"].startswith(f"creating {here}/allocator.db, because ")
