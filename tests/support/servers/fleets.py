"""Fleets of databases: how tests let them grow, and draw until something is seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.fleet.grow import Growth
from support.servers.administrator import execute

on_servers = pytest.mark.parametrize("fleet_kind", ["postgres", "mysql", "mariadb"], indirect=True)

on_one_of_each = pytest.mark.parametrize("fleet_kind", ["sqlite", "mixed"], indirect=True)

once = pytest.mark.parametrize("face", ["sync"], indirect=True)
"""What is decided before either face has a part in it."""

MYSQLS = ["mysql", "mariadb"]
in_each_way = pytest.mark.parametrize(
    ("fleet_kind", "claims"),
    [*((kind, False) for kind in ("sqlite", "postgres", *MYSQLS)), *((kind, True) for kind in MYSQLS)],
    indirect=["fleet_kind"],
    ids=["sqlite", "postgres", *MYSQLS, *(f"{kind}-claims" for kind in MYSQLS)],
)
"""How tickets are drawn: `claims` where MySQL and MariaDB claim them too."""


def claim_tickets(*urls: str) -> None:
    """`allocator db upgrade --tickets claim`."""
    for url in urls:
        with closing(Database(url)) as database:
            database.upgrade_schema()
            database.run(shard_row.claim_tickets, database.address.shown)


@contextmanager
def growing(urls: list[str]) -> Iterator[Growth]:
    growth = Growth([Database(url) for url in urls])
    try:
        yield growth
    finally:
        growth.close()


def grow(urls: list[str], *new: str, headroom: int = 100) -> None:
    with growing(urls) as growth:
        growth.begin()
        for url in new:
            growth.add(Database(url))
        growth.grow(headroom)


def draw_until(ids, drawn: list[int], enough: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not enough() and time.monotonic() < end:
        drawn.append(ids.ticket("job"))
    assert enough()


def copy_row(source: str, target: str) -> None:
    one, two = Database(source), Database(target)
    row = one.run(shard_row.fetch)
    assert row is not None
    execute(target, "DELETE FROM allocator_shard")
    two.run(shard_row.add, row, two.address.shown)
    one.close(), two.close()
