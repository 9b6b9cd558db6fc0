"""Worker numbers for any generator: on every database, over HTTP, through both faces, and as an operator sees them."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from support.faults.wire import Wire
from support.kit import OF_THE_RULE, ON_SERVERS, backend_of, now_ms, run
from support.processes.patience import until
from support.service.served import Guarded, Served

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import InvalidSetting, LeaseLost, NodeIdsExhausted, TooManyRequests
from allocator.schemes.worker_number_lease import NumberClaim


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


# -- the faces


def test_each_gets_the_smallest_number_that_nobody_holds_and_gives_it_back_at_the_end(face, place, tag):
    ids = face(place)
    other = leased(ids, f"{tag}.other", bits=16, seconds=5)
    with leased(ids, tag) as one, leased(ids, tag) as two, other as first:
        assert (one.number, two.number, first.number) == (0, 1, 0)
        assert not one.lost
        assert 0 < one.left() <= 60
        assert 0 < one.until.timestamp() - now_ms() / 1000 <= 60

    assert (one.lost, one.left()) == (True, 0.0)
    assert until(lambda: number_of(ids, tag) == 0, every=1.0)


def number_of(ids: Any, space: str, **settings: Any) -> int:
    with leased(ids, space, **settings) as found:
        return found.number


@OF_THE_RULE
def test_closing_the_allocator_gives_it_back(face, place, tag):
    ids = face(place)
    with leased(ids, tag) as one:
        ids.close()
        assert one.lost
    with Allocator(place) as other:
        assert until(lambda: number_of(other, tag) == 0, every=1.0)


@OF_THE_RULE
def test_all_of_a_space_use_the_same_settings(face, place, tag):
    ids = face(place)
    with leased(ids, tag):
        for settings, said in (({"bits": 3}, "is leased with bits=10, by"), ({"seconds": 30}, "has leases of 60 s, ")):
            with pytest.raises(InvalidSetting, match=said):
                number_of(ids, tag, **settings)


async def awaited() -> None: ...


def test_what_cannot_be_called_when_a_number_is_lost_is_refused_at_once(face):
    for wrong in (awaited, 5):
        with pytest.raises(InvalidSetting, match="on_lost must be"):
            face("sqlite://").worker("a", on_lost=wrong)


def test_several_that_start_at_once_have_a_number_each(url, tag):
    def take(number: int) -> int:
        with closing(Database(url, timeout=30)) as database:
            return database.lease_number(NumberClaim(tag, 5, 60_000, now_ms(), f"{number}")).number

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(take, range(32)))

    assert sorted(numbers) == list(range(32))


# -- A leased worker number while the network or the server fails, and in a fleet of several databases


SECONDS = 12.0
"""Renewed after four, and each second while that fails: eight are left to a busy machine."""


@ON_SERVERS
def test_a_lease_outlives_a_network_that_fails_for_a_while_and_ends_where_it_stays_away(fresh, caplog):
    told = threading.Event()
    with Wire(fresh) as wire, Allocator(wire.url) as ids:
        with ids.worker("pods", seconds=SECONDS, on_lost=told.set) as held:
            wire.refuse()
            assert until(lambda: "number 0 of space 'pods' was not renewed" in caplog.text)
            assert not held.lost
            wire.accept()
            assert until(lambda: held.left() > SECONDS * 0.7)
            wire.refuse()
            assert told.wait(60)
            assert held.lost
        wire.accept()


# -- over HTTP, and what an operator sees


def test_the_verbs_of_a_client_are_those_of_a_database(guarded, service):
    with Allocator(service.address, token=guarded.admin) as ids:
        backend = backend_of(ids)
        lease, _ = (backend.lease_number(NumberClaim("verbs", 1, 60_000, now_ms(), "", "hé\n", 1)) for _ in range(2))
        with pytest.raises(NodeIdsExhausted):
            backend.lease_number(NumberClaim("verbs", 1, 60_000, now_ms(), ""))
        backend.renew_number(lease, now_ms())
        backend.release_number(lease, now_ms())
        for verb in (backend.renew_number, backend.release_number):
            with pytest.raises(LeaseLost):
                verb(lease, now_ms())


def test_who_holds_what_is_listed_and_which_nodes_there_are(fresh):
    assert run(fresh, "worker", "list").out == "no number was leased yet\n"
    with Allocator(fresh) as ids, ids.worker("pods", bits=2, seconds=90) as held:
        lines = run(fresh, "worker", "list").out.splitlines()
        (space,) = run(fresh, "worker", "list", "--json").json["spaces"]

        assert lines[0] == "pods: 1 held, 3 free, leases of 90 s"
        assert lines[1].split() == ["number", "host", "process", "until"]
        assert lines[2].split()[0] == str(held.number) == "0"
        assert [space[name] for name in ("space", "bits", "seconds", "free")] == ["pods", 2, 90.0, 3]
        assert space["held"][0]["process"] > 0
    assert run(fresh, "worker", "list").out == "pods: 0 held, 4 free, leases of 90 s\n"
    assert run(fresh, "next", "--scheme", "meteor").code == 0
    (node,) = run(fresh, "worker", "list", "--json").json["nodes"]
    assert node["process"] == os.getpid()
    assert run(fresh, "worker", "list").out.splitlines()[-1].split()[0] == str(node["node"])


def test_a_space_has_figures(tmp_path):
    with Guarded(str(tmp_path)) as guarded:
        guarded.database.lease_number(NumberClaim("mine", 2, 600_000, now_ms(), "a"))
        with Served(guarded.url) as service:
            line = 'allocator_worker_numbers{space="mine",state="free"} 3.0'
            assert until(lambda: line in service.get("/metrics", token=guarded.admin).body.decode())
            assert 'state="held"} 1.0' in service.get("/metrics", token=guarded.admin).body.decode()
