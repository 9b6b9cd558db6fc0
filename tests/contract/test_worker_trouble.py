"""A leased worker number while the network or the server fails, and in a fleet of several databases."""

import threading
from contextlib import closing
from time import time_ns

import pytest
from support.faults.wire import Wire
from support.kit import ON_SERVERS
from support.processes.patience import until
from support.servers.databases import with_schema
from support.servers.machine_images import killable

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import LeaseLost, ShardMisconfigured
from allocator.schemes.worker_number_lease import NumberClaim

SECONDS = 12.0
"""Renewed after four, and each second while that fails: eight are left to a busy machine."""


def claim(space: str, holder: str) -> NumberClaim:
    return NumberClaim(space, 3, 60_000, time_ns() // 1_000_000, holder)


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


@pytest.mark.nightly  # a server of its own is killed
@ON_SERVERS
def test_a_restart_of_the_server_loses_no_lease_and_delays_none(kind):
    with killable(kind) as server:
        with_schema(server.url)
        with closing(Database(server.url, timeout=30)) as database:
            first = database.lease_number(claim("pods", "a"))
            given_back = database.lease_number(claim("pods", "b"))
            database.release_number(given_back, time_ns() // 1_000_000)
            server.kill()
            server.start()

            database.renew_number(first, time_ns() // 1_000_000)
            with pytest.raises(LeaseLost):
                database.renew_number(given_back, time_ns() // 1_000_000)
            assert database.lease_number(claim("pods", "c")).number in (1, 2)


@pytest.mark.parametrize("fleet_kind", ["sqlite", "mixed"], indirect=True)
def test_of_several_shards_the_lead_alone_leases(shards):
    urls = shards(2)
    with Allocator(shards=urls) as ids:
        ids.next_id("order")
        with ids.worker("pods") as one, ids.worker("pods") as two:
            assert (one.number, two.number) == (0, 1)
    with closing(Database(urls[0])) as lead, closing(Database(urls[1])) as other:
        assert [len(space.held) for space in lead.worker_spaces()] == [0]
        assert other.worker_spaces() == []
        with pytest.raises(ShardMisconfigured, match="numbered by shard 1 alone"):
            other.lease_number(claim("pods", "a"))
