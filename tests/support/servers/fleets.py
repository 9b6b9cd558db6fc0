"""Fleets of databases: how tests make them, and draw until something is seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import pytest

from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.fleet import commands
from allocator.schemes.slots import Word

on_servers = pytest.mark.parametrize("fleet_kind", ["postgres", "mysql", "mariadb"], indirect=True)

on_one_of_each = pytest.mark.parametrize("fleet_kind", ["sqlite", "mixed"], indirect=True)


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
            database.transact(shard_row.claim_tickets, database.address.shown)


@contextmanager
def opened(urls: Sequence[str]) -> Iterator[list[Database]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Database(url))) for url in urls]


def named(url: str, word: Word | str | None) -> str:
    """The URL that says its slot."""
    return f"{url}{'&' if '?' in url else '?'}shard={word}"


def bare(url: str) -> str:
    """Without its slot."""
    return url.partition("?shard=")[0].partition("&shard=")[0]


def make(url: str, slots: int) -> str:
    """Make a database slot 1; the URL that says so."""
    with closing(Database(url)) as database:
        return named(url, commands.make(database, slots).word)


def add(members: Sequence[str], new: str, slot: int, *without: int, is_unused: bool = False) -> str:
    """Add a database to a fleet; the URL that says its slot."""
    with opened([*members, new]) as databases:
        return named(new, commands.add(databases[:-1], databases[-1], slot, without, is_unused=is_unused).word)


def made(urls: Sequence[str], slots: int = 0) -> list[str]:
    """Make a fleet: the URLs, each with its slot."""
    first, *others = urls
    members = [make(first, slots or max(2, len(urls)))]
    for slot, url in enumerate(others, 2):
        members.append(add(members, url, slot))
    return members


def draw_until(ids, drawn: list[int], enough: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not enough() and time.monotonic() < end:
        drawn.append(ids.ticket("job"))
    assert enough()
