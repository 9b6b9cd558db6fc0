"""Worker numbers for any generator: on every database, over HTTP, and through both faces."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from typing import Any

import pytest
from support.faults.wire import Wire
from support.kit import OF_THE_RULE, ON_SERVERS, SQLITE, now_ms
from support.processes.patience import until

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import InvalidSetting, NodeIdsExhausted, TooManyRequests
from allocator.schemes.worker_number_lease import NumberClaim

L = 60_000

spaces = (f"space-{number}" for number in count())


@pytest.fixture
def space() -> str:
    """One that no other test uses."""
    return next(spaces)


@contextmanager
def leased(ids: Any, *args: Any, **settings: Any) -> Iterator[Any]:
    """A lease of either face. The shared service gives twenty numbers at once, and then one a second."""
    if isinstance(ids, Allocator):
        lease: Any = ids.worker(*args, **settings)
        enter, leave = lease.__enter__, lambda: lease.__exit__(None, None, None)
    else:
        lease, run = ids.target.worker(*args, **settings), ids.loop.run_until_complete
        enter, leave = lambda: run(lease.__aenter__()), lambda: run(lease.__aexit__(None, None, None))

    def is_leased() -> bool:
        try:
            enter()
        except TooManyRequests:
            return False
        return True

    assert until(is_leased, every=1.0)
    try:
        yield lease
    finally:
        leave()


def claim(space: str, holder: str = "a", bits: int = 2, length_ms: int = L, wall_ms: int | None = None) -> NumberClaim:
    return NumberClaim(space, bits, length_ms, now_ms() if wall_ms is None else wall_ms, holder, "there", 5)


# -- the faces


def test_each_gets_the_smallest_number_that_nobody_holds(face, place, space):
    ids = face(place)
    other = leased(ids, f"{space}.other", bits=16, seconds=5)
    with leased(ids, space) as one, leased(ids, space) as two, other as first:
        assert (one.number, two.number, first.number) == (0, 1, 0)
        assert not one.lost
        assert 0 < one.left() <= 60
        assert 0 < one.until.timestamp() - now_ms() / 1000 <= 60


def test_a_number_is_given_back_at_the_end(face, place, space):
    ids = face(place)
    with leased(ids, space) as one:
        pass

    assert (one.lost, one.left()) == (True, 0.0)
    assert until(lambda: number_of(ids, space) == 0, every=1.0)


def number_of(ids: Any, space: str, **settings: Any) -> int:
    with leased(ids, space, **settings) as found:
        return found.number


@OF_THE_RULE
def test_closing_the_allocator_gives_it_back(face, place, space):
    ids = face(place)
    with leased(ids, space) as one:
        ids.close()
        assert one.lost
    with Allocator(place) as other:
        assert until(lambda: number_of(other, space) == 0, every=1.0)


@SQLITE
def test_when_all_are_held_it_says_by_whom(face, url, space):
    ids = face(url)
    with ExitStack() as held:
        numbers = [held.enter_context(leased(ids, space, bits=2)).number for _ in range(4)]
        with pytest.raises(
            NodeIdsExhausted,
            match=rf"all 4 numbers of space '{space}' are held, by .* \(process {os.getpid()}\); unless one is",
        ):
            held.enter_context(leased(ids, space, bits=2))

    assert numbers == [0, 1, 2, 3]


@OF_THE_RULE
def test_all_of_a_space_use_the_same_settings(face, place, space):
    ids = face(place)
    with leased(ids, space):
        for settings, said in (({"bits": 3}, "is leased with bits=10, by"), ({"seconds": 30}, "has leases of 60 s, ")):
            with pytest.raises(InvalidSetting, match=said):
                number_of(ids, space, **settings)


async def awaited() -> None: ...


@SQLITE
def test_settings_that_are_none_are_refused_at_once(face, url):
    ids = face(url)
    for wrong in ({"space": "a b"}, {"bits": 32}, {"seconds": "60"}, {"on_lost": awaited}, {"on_lost": 5}):
        with pytest.raises(ValueError, match=f"a tag is|{next(iter(wrong))} must be"):
            ids.worker(**{"space": "a", **wrong})


@pytest.mark.statements
def test_several_that_start_at_once_have_a_number_each(url, space):
    def take(number: int) -> int:
        with closing(Database(url, timeout=30)) as database:
            return database.lease_number(claim(space, f"{number}", bits=5)).number

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(take, range(32)))

    assert sorted(numbers) == list(range(32))


# -- A leased worker number while the network or the server fails, and in a fleet of several databases


SECONDS = 12.0
"""Renewed after four, and each second while that fails: eight are left to a busy machine."""


@ON_SERVERS
def test_a_lease_outlives_a_network_that_fails_for_a_while(fresh, caplog):
    with Wire(fresh) as wire, Allocator(wire.url) as ids, ids.worker("pods", seconds=SECONDS) as held:
        wire.refuse()
        assert until(lambda: "number 0 of space 'pods' was not renewed" in caplog.text)
        assert not held.lost
        wire.accept()
        assert until(lambda: held.left() > SECONDS * 0.7)


@ON_SERVERS
def test_a_lease_ends_where_the_database_stays_away(fresh):
    told = threading.Event()
    with Wire(fresh) as wire, Allocator(wire.url) as ids:
        with ids.worker("pods", seconds=5, on_lost=told.set) as held:
            wire.refuse()
            assert told.wait(60)
            assert held.lost
        wire.accept()
