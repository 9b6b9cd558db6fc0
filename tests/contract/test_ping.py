"""`ping` and `create_tables`: before the first request, on every database, a service, and both faces."""

import pytest
from support.kit import ON_SERVERS
from support.servers.administrator import execute
from support.servers.fleets import once

from allocator import Allocator
from allocator.errors import DatabaseUnavailable, InvalidSetting, SchemaOutOfDate
from allocator.testing import MemoryAllocator


@pytest.mark.parametrize("place", ["sqlite", "service"], indirect=True)
def test_a_ping_draws_nothing(face, place, tag):
    ids = face(place)
    ids.ping()
    ids.ping()

    assert ids.next_id(tag) == 1


@pytest.mark.statements
@once
def test_tables_are_made_and_made_again(face, empty):
    ids = face(empty)
    ids.create_tables()
    ids.create_tables()
    ids.ping()

    assert ids.next_id("order") == 1


@pytest.mark.statements
@once
@ON_SERVERS  # SQLite makes its own
def test_a_ping_says_that_the_tables_are_missing(face, empty):
    with pytest.raises(SchemaOutOfDate, match="allocator db upgrade"):
        face(empty).ping()


@pytest.mark.statements
@once
def test_a_ping_says_that_a_table_is_lost(face, fresh):
    execute(fresh, "DROP TABLE allocator_segment")
    with pytest.raises(SchemaOutOfDate, match="allocator_segment.*allocator db upgrade"):
        face(fresh).ping()


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)  # whose shards are of this test alone
def test_a_ping_of_a_fleet_is_answered_by_one(fleet):
    urls = fleet(2)
    with Allocator(shards=urls) as ids:
        ids.ping()
        execute(urls[0].partition("?shard=")[0], "DROP TABLE allocator_shard")
        ids.ping()
        execute(urls[1].partition("?shard=")[0], "DROP TABLE allocator_shard")
        with pytest.raises(SchemaOutOfDate):
            ids.ping()


def test_a_ping_of_nobody_and_a_service_that_makes_no_tables(face):
    for address in ("postgresql+psycopg://127.0.0.1:9/none", "http://127.0.0.1:9"):
        with pytest.raises(DatabaseUnavailable):
            face(address, timeout=0.5).ping()
    with pytest.raises(InvalidSetting, match="a client of a service cannot create tables"):
        face("http://127.0.0.1:9").create_tables()


def test_in_memory_there_is_nothing_to_make():
    with MemoryAllocator() as ids:
        ids.create_tables()
        ids.ping()
        with ids.fail(DatabaseUnavailable("away")), pytest.raises(DatabaseUnavailable):
            ids.ping()
