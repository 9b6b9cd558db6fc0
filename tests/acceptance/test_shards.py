"""`allocator shards` as an operator types it, on SQLite, and once on each server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url

from allocator.cli import main
from allocator.database.address import address_of


def run(*words: str, urls: list[str] | None = None) -> Result:
    options = [word for url in urls or () for word in ("--url", url)]
    return CliRunner().invoke(main, [*words, *options], env={"ALLOCATOR_DATABASE_URL": None})


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two", "three")]


def tickets(urls: list[str], count: int) -> list[int]:
    done = run("next", "--scheme", "ticket", "job", "-n", str(count), urls=urls)
    assert done.exit_code == 0, done.output
    return [int(line) for line in done.output.split()]


def test_tickets_come_from_the_shards_in_turn(files):
    assert tickets(files, 5) == [1, 2, 3, 4, 5]
    assert tickets(files[:1], 1) == [7]
    done = run("next", "--scheme", "ticket", "job", "--json", urls=files)

    assert json.loads(done.output) == {"tag": "job", "ids": ["10"]}


def test_several_urls_may_come_from_the_environment(files):
    words = ["next", "--scheme", "ticket", "job", "-n", "3"]
    done = CliRunner().invoke(main, words, env={"ALLOCATOR_DATABASE_URL": " ".join(files)})

    assert done.output == "1\n2\n3\n"
    refused = CliRunner().invoke(main, ["db", "check"], env={"ALLOCATOR_DATABASE_URL": " ".join(files)})
    assert (refused.exit_code, "this command takes one database, got 3" in refused.output) == (2, True)


def test_a_fleet_is_listed(files):
    assert "not reached: there is no file" in run("shards", "list", urls=files[:1]).output
    tickets(files[:2], 5)
    done = run("shards", "list", urls=files[:1])
    heading, first, second = done.output.splitlines()

    assert heading.split() == ["offset", "step", "database", "last", "state"]
    assert first.split()[:2] == ["1", "2"]
    assert first.endswith("one.db     6  serving")
    assert second.split()[:2] == ["2", "2"]
    (listed, _) = json.loads(run("shards", "list", "--json", urls=files[:1]).output)
    assert (listed["offset"], listed["step"], listed["last"], listed["state"]) == (1, 2, "6", "serving")


def test_a_fleet_grows_and_is_told_what_comes_next(files):
    before = tickets(files[:1], 3)
    added = run("shards", "add", files[1], urls=files[:1])
    assert (
        added.exit_code,
        "will be shard 2; now run, with the same --url: allocator shards grow" in added.output,
    ) == (0, True)
    assert "joining: run allocator shards grow" in run("shards", "list", urls=files[:1]).output
    assert run("shards", "add", files[2], urls=files[:1]).exit_code == 0
    grown = run("shards", "grow", "--headroom", "10", urls=files[:1])
    assert (grown.exit_code, grown.output.startswith("3 shards, generation 2: tickets continue from ")) == (0, True)
    after = tickets(files, 9)

    assert min(after) > max(before)
    assert {ticket % 3 for ticket in after} == {0, 1, 2}
    again = run("shards", "grow", urls=files[:1])
    assert (again.exit_code, "no growth is planned; add a database with" in again.stderr) == (1, True)


def test_an_upgrade_joins_no_databases(files, tmp_path):
    """Nothing is written unless they are one fleet already; the sentence names the command that joins."""
    one, two, three = files
    (tmp_path / "two.db").touch()

    def refused(*urls: str) -> list[str]:
        done = run("db", "upgrade", urls=[*urls])
        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), done.output
        return done.stderr.partition("join them with: allocator ")[2].split()

    assert refused(one, two) == ["shards", "add", address_of(two).shown, "--url", address_of(one).shown]
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size] == []
    assert (tmp_path / "one.db").exists() is False
    tickets([two], 1)
    assert refused(one, two) == ["shards", "add", address_of(one).shown, "--url", address_of(two).shown]
    for url in one, two:
        assert run("db", "upgrade", urls=[url]).exit_code == 0
    before = [(tmp_path / name).read_bytes() for name in ("one.db", "two.db")]
    join = refused(two, one)
    assert [(tmp_path / name).read_bytes() for name in ("one.db", "two.db")] == before
    assert run(*join).exit_code == 0
    assert run("db", "upgrade", urls=[two, one]).exit_code == 0  # while it joins
    assert run("shards", "grow", urls=[two]).exit_code == 0
    done = run("db", "upgrade", urls=[one, two])
    assert (done.exit_code, len(done.output.splitlines())) == (0, 2)
    assert refused(one, two, three)[2] == address_of(three).shown
    assert (tmp_path / "three.db").exists() is False
    tickets(files[2:], 1)
    assert refused(three, one, two)[2] == address_of(three).shown
    assert "under two URLs" in run("db", "upgrade", urls=[three, three]).stderr


def test_what_was_added_can_be_taken_back(files):
    tickets(files[:1], 1)
    assert run("shards", "grow", "--take-back", urls=files[:1]).output == "no growth to undo\n"
    run("shards", "add", files[1], urls=files[:1])
    assert run("shards", "grow", "--take-back", urls=files[:1]).output == "growth undone\n"
    assert run("shards", "grow", urls=files[:1]).exit_code == 1
    run("shards", "add", files[1], urls=files[:1])

    assert run("shards", "grow", urls=files[:1]).exit_code == 0


def test_a_shard_that_is_lost_is_left_out(files, tmp_path):
    tickets(files[:2], 4)
    run("shards", "add", files[2], urls=files[:1])
    (tmp_path / "two.db").unlink()
    for words in ([], ["--take-back"]):
        waits = run("shards", "grow", *words, urls=files[:1])
        assert (waits.exit_code, "there is no file" in waits.stderr) == (1, True), waits.output
    without = ["shards", "grow", "--without", files[1]]
    assert run(*without, "--take-back", urls=files[:1]).output == "growth undone\n"
    assert run("shards", "add", files[2], urls=files[:1]).exit_code == 1
    assert run("shards", "add", files[2], "--without", files[1], urls=files[:1]).exit_code == 0
    asks = run(*without, urls=files[:1])
    assert (asks.exit_code, "pass --above N" in asks.stderr, len(asks.stderr.splitlines())) == (1, True, 1)
    done = run(*without, "--above", "5000", "--headroom", "10", urls=files[:2])

    assert done.output == "3 shards, generation 2: tickets continue from 5011\n"
    assert min(tickets([files[0], files[2]], 4)) > 5010
    alone = run("shards", "grow", "--above", "5000", urls=files[:1])
    assert (alone.exit_code, "needs --without URL" in alone.stderr) == (2, True)


def test_a_shard_is_trusted(files):
    tickets(files[:2], 4)
    done = run("shards", "trust", files[1], "--headroom", "10", urls=files[:1])

    assert (done.exit_code, done.output.endswith("continues from 26\n")) == (0, True)
    assert tickets(files[:2], 2) == [5, 26]


def test_what_makes_no_sense_is_refused_in_one_sentence(files):
    tickets(files[:1], 1)
    for words, sentence in {
        "add mysql://h": "names no database",
        "add sqlite:////no/such/folder/x.db": "refuses",
        "grow": "no growth is planned; add a database with",
        "trust sqlite://": "is no shard of this fleet",
    }.items():
        done = run("shards", *words.split(), urls=files[:1])

        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1), words
        assert sentence in done.stderr


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
def test_a_password_is_never_shown(fresh, kind, new_database):
    """Other shards are told by their URLs, and those are kept in the tables."""
    secret = make_url(fresh).password or "s3cret-word"  # where any is let in
    fresh = make_url(fresh).set(password=secret).render_as_string(hide_password=False)
    shown = run("shards", "list", "--json", urls=[fresh]).output
    tickets([fresh], 1)
    shown += run("shards", "list", urls=[fresh]).output
    shown += run("shards", "add", new_database(kind), urls=[fresh]).output

    assert f":{secret}@" not in shown


def test_looking_makes_no_files(files, tmp_path):
    tickets(files, 3)
    (tmp_path / "two.db").rename(tmp_path / "away")
    assert "not reached: there is no file" in run("shards", "list", urls=files[:1]).output
    assert tickets(files, 4) == [4, 6, 7, 9]
    assert not (tmp_path / "two.db").exists()
    (tmp_path / "away").rename(tmp_path / "two.db")

    assert tickets(files, 3) == [10, 5, 12]
