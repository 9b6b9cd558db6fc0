"""`allocator shards`, and commands on several databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url
from support.kit import on
from support.servers.fleets import made
from support.transcripts import wrong_commands

from allocator.cli import main


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two", "three")]


def run(*words: str, urls: list[str]) -> Result:
    named = [part for url in urls for part in ("--url", url)]
    return CliRunner().invoke(main, [*words, *named])


def upgraded(files: list[str]) -> list[str]:
    for url in files:
        assert run("db", "upgrade", urls=[url]).exit_code == 0
    return files


def tickets(urls: list[str], count: int) -> list[int]:
    done = run("next", "--scheme", "ticket", "job", "-n", str(count), urls=urls)
    assert done.exit_code == 0, done.output
    return [int(line) for line in done.stdout.split()]


def test_a_fleet_is_drawn_from_in_turn(files):
    """As in the source: of three, DB1 gives 1, 4, 7 and DB2 gives 2, 5, 8. docs/fleets.md makes one by commands."""
    urls = made(upgraded(files))
    assert tickets(urls, 9) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert tickets(urls[::-1], 3) == [12, 11, 10]
    (one, *_) = json.loads(run("shards", "list", "--json", urls=urls).stdout)
    assert one == {"slot": 1, "slots": 3, "database": urls[0].replace(":", "+pysqlite:", 1), "state": "serving"}
    together = " ".join(urls)
    assert wrong_commands(together, "$ next --scheme ticket job -n 3\n13\n14\n15\n") == []
    assert wrong_commands(together, "2$ db check\n...\nError: ...this command takes one database, got 3...\n") == []


def test_a_list_shows_what_is_missing_or_wrong(files, tmp_path):
    urls = made(upgraded(files))
    fewer = run("shards", "list", urls=urls[:1])
    assert fewer.exit_code == 0
    assert [line.split()[0] for line in fewer.stdout.splitlines()[1:]] == ["1", "2", "3"]
    assert fewer.stdout.count("not given") == 2
    swapped = urls[0].replace("one.db", "two.db")
    wrong = run("shards", "list", urls=[swapped])
    assert (wrong.exit_code, "never use a copy beside its original" in wrong.stdout) == (1, True)
    (tmp_path / "two.db").rename(tmp_path / "away")
    away = run("shards", "list", urls=urls)
    assert away.exit_code == 1
    assert "there is no file" in away.output
    (tmp_path / "two.db").write_text("no database " * 99)
    ill = run("shards", "list", urls=urls)
    assert ([line.split()[0] for line in ill.stdout.splitlines()[1:]], ill.exit_code) == (["1", "2", "3"], 1)
    (tmp_path / "new.db").touch()
    assert run("shards", "list", urls=[f"sqlite:///{tmp_path}/new.db"]).stdout.splitlines()[1].split()[0] == "-"


def test_settings_that_differ_and_slots_that_were_not_given_are_said(files):
    urls = made(upgraded(files))
    for url in urls:
        assert run("next", "order", urls=[url]).exit_code == 0
    done = run("tags", "set", "order", "--limit", "300", urls=urls[:2])
    assert (done.exit_code, "slot 3 was not given" in done.stderr, "slot 2" in done.stderr) == (0, True, False)
    for listed in (run("tags", "list", urls=urls), run("tags", "set", "order", "--limit", "300", urls=urls[:1])):
        assert "tag 'order'" in listed.stderr
    listed = run("tags", "list", urls=urls)
    assert "has limit 300 at slot 1, 300 at slot 2, 9223372036854775807 at slot 3; to make them equal" in listed.stderr
    equal = run("tags", "set", "order", "--limit", "300", urls=urls)

    assert (equal.exit_code, equal.stderr, run("tags", "list", urls=urls).stderr) == (0, "", "")


def test_an_upgrade_joins_no_databases(files, tmp_path):
    """Nothing is written unless each is the slot that its URL says."""
    one, two, three = files
    assert "does not say its slot" in run("db", "upgrade", urls=[one, two]).stderr
    assert [path.name for path in tmp_path.iterdir()] == []
    urls = made(upgraded([one, two]))
    done = run("db", "upgrade", urls=urls)
    assert (done.exit_code, len(done.output.splitlines())) == (0, 2)
    (tmp_path / "three.db").touch()
    refused = run("db", "upgrade", urls=[*urls, f"{three}?shard={urls[0].rpartition('=')[2][:-1]}3"])
    assert (refused.exit_code, "is in no fleet" in refused.stderr) == (1, True)
    assert (tmp_path / "three.db").stat().st_size == 0


def test_workers_of_every_slot_are_listed_and_one_that_does_not_answer_is_named(files, tmp_path):
    urls = made(upgraded(files[:2]))
    for url in urls:
        assert run("next", "--scheme", "meteor", urls=[url]).exit_code == 0
    listed = json.loads(run("worker", "list", "--json", urls=urls).stdout)
    assert {node["node"] % 2 for node in listed["nodes"]} == {0, 1}
    (tmp_path / "two.db").rename(tmp_path / "away")
    done = run("worker", "list", "--json", urls=urls)
    assert (done.exit_code, "there is no file" in done.stderr) == (1, True)
    assert {node["node"] % 2 for node in json.loads(done.stdout)["nodes"]} == {1}


@on("postgres", "mysql")
def test_a_password_is_never_shown(fresh, kind, new_database):
    secret = make_url(fresh).password or "s3cret-word"  # where any is let in
    fresh = make_url(fresh).set(password=secret).render_as_string(hide_password=False)
    tickets([fresh], 1)
    done = run("shards", "make", "--slots", "2", urls=[fresh])
    shown = done.output + run("shards", "list", urls=[fresh]).output
    upgraded([other := new_database(kind)])
    shown += run("shards", "add", other, "--slot", "2", urls=[fresh]).output

    assert f":{secret}@" not in shown
    assert done.stdout.strip().endswith(".1")
    assert "gives 1 of 2 ids below a limit, 1 of 2 meteor nodes and 1 of 2 worker numbers" in done.stderr
