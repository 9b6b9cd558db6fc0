"""What the doctor finds where several databases give ids together."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from support.faults.ill_databases import named
from support.servers.administrator import execute

from allocator import Allocator
from allocator.database.store import Database
from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, examine
from allocator.fleet.grow import Growth


@pytest.fixture
def fleet(tmp_path: Path) -> list[str]:
    return new_fleet(tmp_path)


def new_fleet(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    urls = [f"sqlite:///{folder}/{name}.db" for name in ("one", "two", "three")]
    with Allocator(shards=urls) as ids:
        ids.ticket("job")
        ids.next_ids("order", 5)
    return urls


HEALTHY = {"shards-on-one-server"}
"""Of three files on one disk."""


def found_of(urls: list[str]) -> dict[str, Finding]:
    return named(examine(urls))


def test_a_sound_fleet(fleet):
    found = examine(fleet)

    assert {one.name for one in found} == HEALTHY
    assert all(one.severity == NOTE for one in found)
    assert "one.db" in found[0].found


CHANGES = {
    "shard-row-lost": (
        OUTAGE,
        "two.db has no row of allocator_shard, unlike the other shards",
        "DELETE FROM allocator_shard",
    ),
    "shard-on-another-server": (
        OUTAGE,
        "not other: it issues no tickets",
        "UPDATE allocator_shard SET server = 'other'",
    ),
    "shard-contradictory": (DANGER, "says shard 2 of 5", "UPDATE allocator_shard SET shard_step = 5"),
    "shard-offset-twice": (DANGER, "both have offset 1", "UPDATE allocator_shard SET shard_offset = 1"),
    "shards-of-several-fleets": (OUTAGE, "is of 'other'", "UPDATE allocator_shard SET fleet = 'other'"),
    "shard-generations-differ": (DANGER, "in generation 7 with", "UPDATE allocator_shard SET generation = 7"),
    "growth-interrupted": (OUTAGE, "no segments can be claimed on", "UPDATE allocator_shard SET ceiling = 1000"),
    "tag-of-another-lane": (DANGER, "has offset 2 and step 3", "UPDATE allocator_segment SET shard_offset = 1"),
}


def test_a_shard_that_was_changed_by_hand(tmp_path):
    for name, (severity, words, change) in CHANGES.items():
        fleet = new_fleet(tmp_path / name)
        execute(fleet[1], change)
        found = found_of(fleet)[name]
        assert (found.severity, words in found.found) == (severity, True), found
        assert found.mend, name


def test_a_copy_of_a_shard(fleet, tmp_path):
    shutil.copy(tmp_path / "one.db", tmp_path / "copy.db")
    found = found_of([*fleet, f"sqlite:///{tmp_path}/copy.db"])["shard-copied"]

    assert found.severity == DANGER
    assert "are the same database under two URLs, or one is a copy" in found.found


def test_a_shard_that_goes_on_elsewhere(fleet, tmp_path):
    shutil.copy(tmp_path / "three.db", tmp_path / "old.db")
    moved = f"sqlite:///{tmp_path}/new.db"
    (tmp_path / "three.db").rename(tmp_path / "new.db")
    with closing(Growth([Database(url) for url in [*fleet[:2], moved]])) as growth, closing(Database(moved)) as target:
        growth.trust(target, above=1000)
    found = found_of([*fleet[:2], f"sqlite:///{tmp_path}/old.db"])["shard-replaced"]

    assert found.severity == DANGER
    assert "new.db" in found.found


def test_a_shard_that_was_not_given(fleet):
    found = found_of(fleet[:2])["shard-not-given"]

    assert found.severity == NOTE
    assert "three.db" in found.found


@pytest.mark.parametrize("kinds", [("postgres", "postgres"), ("mysql", "mysql"), ("postgres", "mysql")])
def test_shards_on_one_server_and_on_two(kinds, shard_pool):
    urls = [shard_pool(kind, number) for number, kind in enumerate(kinds, start=1)]
    with Allocator(shards=urls) as ids:
        ids.ticket("job")

    assert ("shards-on-one-server" in found_of(urls)) == (kinds[0] == kinds[1])
