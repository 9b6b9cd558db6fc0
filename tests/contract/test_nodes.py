"""Meteor and snowflake out of the database, on every one and through both faces."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from support.distinct import distinct
from support.servers.administrator import execute

from allocator import Allocator, Layout, MeteorSettings, SnowflakeSettings, inspect_id
from allocator.database.store import Database
from allocator.database.verbs import node_and_snowflake_rows
from allocator.errors import DatabaseUnavailable, Exhausted, InvalidSetting, MaxValueWentBack, NodeIdsExhausted
from allocator.rules.failover import LEASES_SKIPPED_MS
from allocator.schemes.snowflake import AHEAD_MS, SNOWFLAKE, Lease, LeaseClaim

of_the_rule = pytest.mark.parametrize("place", ["sqlite", "service"], indirect=True)
"""What is decided whatever the database."""
once = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
statements = pytest.mark.statements

OVER = Layout(sign=1, timestamp=30, datacenter=5, worker=5, sequence=23)
TINY = Layout(sign=1, timestamp=49, datacenter=1, worker=1, sequence=12)


def fields(number: int, scheme: str) -> dict:
    return inspect_id(number, scheme=scheme).readings[0].fields


def test_meteor_ids_increase_under_one_node(face, place):
    ids = face(place)
    drawn = [ids.meteor() for _ in range(5000)]

    assert distinct(drawn)
    assert sorted(drawn) == drawn
    assert len({fields(number, "meteor")["node"] for number in drawn}) == 1
    assert abs(inspect_id(drawn[0], scheme="meteor").readings[0].time.timestamp() - time.time()) < 60


@statements
def test_every_start_gets_a_node_of_its_own(face, fresh):
    nodes = [fields(face(fresh).meteor(), "meteor")["node"] for _ in range(5)]

    assert distinct(nodes)
    assert sorted(nodes) == nodes


@of_the_rule
def test_a_node_whose_seconds_ran_out_is_followed_by_another(face, place):
    layout = Layout(sign=1, second=8, node=23, sequence=30, random=2)
    ids = face(place, meteor=MeteorSettings(epoch=int(time.time()), layout=layout))
    first = layout.unpack(ids.meteor())
    end_of_field(ids)
    second = layout.unpack(ids.meteor())

    assert second["node"] > first["node"]


def end_of_field(ids) -> None:
    """As if every second of the node had been drawn."""
    supply = getattr(ids, "_meteor", None) or ids._allocator._meteor
    supply._core.blocks.second = 256
    supply._serve(())


@statements
def test_node_numbers_are_not_used_again_after_a_restart_of_the_counter(fresh, kind):
    with Allocator(fresh) as ids:
        ids.meteor()
    with Allocator(fresh) as ids:
        ids.meteor()
    execute(
        fresh,
        {
            "sqlite": "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'allocator_node'",
            "postgres": "ALTER TABLE allocator_node ALTER COLUMN id RESTART WITH 1",
        }.get(kind, "ALTER TABLE allocator_node AUTO_INCREMENT = 1"),
    )
    with Allocator(fresh) as ids:
        try:
            node = fields(ids.meteor(), "meteor")["node"]
        except MaxValueWentBack as error:
            assert "counter" in str(error)  # noqa: PT017
        else:
            assert node == 3


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_number_below_one_that_is_known_is_not_used(fresh):
    """Also where no row has it, so that the key does not refuse it."""
    with closing(Database(fresh)) as database:
        execute(fresh, "ALTER TABLE allocator_node ALTER COLUMN id RESTART WITH 10")
        assert database.register_node() == 10
        execute(fresh, "ALTER TABLE allocator_node ALTER COLUMN id RESTART WITH 5")
        with pytest.raises(MaxValueWentBack, match="set back"):
            database.register_node()


@statements
def test_a_number_whose_row_was_deleted_is_not_given_again(fresh):
    with Allocator(fresh) as ids:
        node = fields(ids.meteor(), "meteor")["node"]
    execute(fresh, "DELETE FROM allocator_node")
    with Allocator(fresh) as ids:
        assert fields(ids.meteor(), "meteor")["node"] > node


@once
def test_a_node_beyond_the_layout_is_refused(face, fresh):
    layout = Layout(sign=1, second=50, node=1, sequence=10, random=2)
    face(fresh).meteor()
    with pytest.raises(NodeIdsExhausted, match="node 2 does not fit the layout 1/50/1/10/2"):
        face(fresh, meteor=MeteorSettings(layout=layout)).meteor()


@statements
def test_several_that_start_at_once_use_a_number_each(fresh):
    def register(_: int) -> int:
        with closing(Database(fresh, timeout=30)) as database:
            return database.register_node()

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(register, range(24)))

    assert sorted(numbers) == list(range(1, 25))


def test_settings_that_are_none_are_refused(face):
    for settings in ({"meteor": 5}, {"snowflake": 5}, {"meteor": MeteorSettings(epoch=-1)}):
        with pytest.raises(InvalidSetting, match="expected (Meteor|Snowflake)Settings, got 5|must be"):
            face("sqlite://", **settings)


@once
def test_a_format_whose_time_has_not_come_leases_nothing(face, fresh):
    for settings in (SnowflakeSettings(epoch=4_000_000_000_000), SnowflakeSettings(layout=OVER)):
        with pytest.raises((InvalidSetting, Exhausted)):
            face(fresh, snowflake=settings).snowflake()

    assert face(fresh).snowflake() > 0


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_node_or_lease_whose_commit_came_with_a_warning_is_not_used(fresh):
    execute(
        fresh,
        "CREATE FUNCTION warn() RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'canceling wait'; RETURN true; END $$",
        "ALTER TABLE allocator_node ADD CHECK (warn())",
        "ALTER TABLE allocator_worker ADD CHECK (warn())",
    )
    with Allocator(fresh, timeout=2) as ids:
        ids.ping()
        for call in (ids.meteor, ids.snowflake):
            with pytest.raises(DatabaseUnavailable, match="came with a warning"):
                call()


@statements
def test_nodes_are_listed_with_who_started(fresh):
    for _ in range(2):
        with Allocator(fresh) as ids:
            ids.meteor()
            found, *before = ids._backend.databases()[0].run(node_and_snowflake_rows.fetch_newest, 10)

    assert found.number == 2
    assert [node.number for node in before] == [1], "no row is ever deleted"
    assert found.host
    assert abs(found.started_at.timestamp() - time.time()) < 60


def test_snowflake_ids_increase_under_one_worker(face, place):
    ids = face(place)
    drawn = [ids.snowflake() for _ in range(10_000)]
    workers = {(fields(number, "snowflake")["datacenter"], fields(number, "snowflake")["worker"]) for number in drawn}

    assert distinct(drawn)
    assert sorted(drawn) == drawn
    assert len(workers) == 1
    assert abs(inspect_id(drawn[0], scheme="snowflake").readings[0].time.timestamp() - time.time()) < 60


def test_two_allocators_have_two_workers(face, place):
    one, two = face(place), face(place)
    drawn = [number for _ in range(500) for number in (one.snowflake(), two.snowflake())]

    assert distinct(drawn)


@once
def test_when_all_workers_are_leased_it_says_by_whom(face, fresh):
    settings = SnowflakeSettings(layout=TINY, lease=60)
    for _ in range(4):
        face(fresh, snowflake=settings).snowflake()
    with pytest.raises(
        NodeIdsExhausted, match=r"all 4 workers are leased, by .* \(process \d+\); the next lease ends in"
    ):
        face(fresh, snowflake=settings).snowflake()


@once
def test_another_layout_or_epoch_is_refused(face, fresh):
    face(fresh).snowflake()
    for settings in (SnowflakeSettings(layout=TINY), SnowflakeSettings(epoch=0)):
        with pytest.raises(InvalidSetting, match="all processes of a database must use the same"):
            face(fresh, snowflake=settings).snowflake()


@of_the_rule
def test_a_lease_is_renewed_under_load_and_ids_never_stop(face, place):
    ids = face(place, snowflake=SnowflakeSettings(lease=0.5))
    drawn, end = [], time.monotonic() + 1.0
    while time.monotonic() < end:
        drawn.append(ids.snowflake())

    assert distinct(drawn)
    assert sorted(drawn) == drawn


@once
def test_a_lease_begins_after_the_one_that_it_follows(fresh):
    with closing(Database(fresh)) as database:

        def lease(now: int) -> Lease:
            return database.lease_worker(LeaseClaim(None, now, now + 1000), TINY, 0)

        before = {one.number: one for one in (lease(1000 + n) for n in range(4))}
        with pytest.raises(NodeIdsExhausted):
            lease(2000)
        later = lease(2001)

    assert sorted(before) == [0, 1, 2, 3]
    assert before[later.number].until < later.since == 2001


@statements
def test_a_worker_is_taken_over_by_one_only(fresh):
    """Two that see the same ended lease: the second finds it changed."""
    database = Database(fresh)
    lease = database.lease_worker(LeaseClaim(None, 1000, 2000), SNOWFLAKE, 0)
    (row,) = database.run(node_and_snowflake_rows.fetch_workers)
    fresh_row = type(row)(row.number, row.layout, row.epoch, "other", 9000, "here", 1)

    assert database.run(node_and_snowflake_rows.take_worker, row, fresh_row)
    assert not database.run(node_and_snowflake_rows.take_worker, row, fresh_row)
    assert not database.run(node_and_snowflake_rows.add_worker, fresh_row)
    assert not database.run(node_and_snowflake_rows.renew_worker, lease, LeaseClaim(lease, 2000, 99_000))
    database.close()


@statements
def test_a_worker_is_leased_and_renewed_by_no_clock_that_is_far_ahead(fresh):
    """Each start of a process with such a clock would take one of 1024 workers for years."""
    near, minute = AHEAD_MS - 30_000, 60_000
    with closing(Database(fresh)) as database:

        def lease(held: Lease | None, ahead: int) -> Lease:
            at = int(time.time() * 1000) + ahead
            return database.lease_worker(LeaseClaim(held, at, at + minute), SNOWFLAKE, 0)

        def refuses(held: Lease | None, ahead: int) -> None:
            before = database.run(node_and_snowflake_rows.fetch_workers)
            with pytest.raises(
                InvalidSetting, match=r"is \d+ s ahead of the database's, and may be 60 s ahead; set both"
            ):
                lease(held, ahead)
            assert database.run(node_and_snowflake_rows.fetch_workers) == before

        refuses(None, 10 * 365 * 86_400_000)
        refuses(None, AHEAD_MS + 30_000)
        held = lease(lease(None, near), near)
        refuses(held, AHEAD_MS + 30_000)
        execute(fresh, "UPDATE allocator_failover SET server_run = 'elsewhere'")
        held = lease(None, 0)
        # The failover has set leases ahead by this; by twice as much, had another clock dated it.
        moved = held.since - int(time.time() * 1000)
        assert lease(held, moved + near).until > held.until
        refuses(held, moved + LEASES_SKIPPED_MS + AHEAD_MS + 30_000)
        refuses(None, moved + LEASES_SKIPPED_MS + AHEAD_MS + 30_000)


@statements
def test_a_lease_is_renewed_though_the_clock_that_dated_the_failover_was_ahead(fresh, monkeypatch):
    """Whoever notes a failover may only make tags: leases of others begin by its clock."""
    with closing(Database(fresh)) as database:
        database.failover()
        execute(fresh, "UPDATE allocator_failover SET server_run = 'elsewhere'")
        with monkeypatch.context() as patched:
            wall = time.time_ns() + LEASES_SKIPPED_MS * 10**6
            patched.setattr("allocator.database.registry.time_ns", lambda: wall)
            database.failover()
        at = int(time.time() * 1000)
        held = database.lease_worker(LeaseClaim(None, at, at + 60_000), SNOWFLAKE, 0)
        later = held.since + 10_000

        assert database.lease_worker(LeaseClaim(held, later, later + 60_000), SNOWFLAKE, 0).until == later + 60_000
        database.lease_worker(LeaseClaim(None, later, later + 60_000), SNOWFLAKE, 0)


@statements
def test_a_lease_that_was_renewed_is_not_taken_over_and_never_shortened(fresh):
    """Whoever saw it end would begin where it goes on by now."""
    database = Database(fresh)
    lease = database.lease_worker(LeaseClaim(None, 1000, 2000), SNOWFLAKE, 0)
    (seen,) = database.run(node_and_snowflake_rows.fetch_workers)
    for until in (5000, 4000):
        assert database.run(node_and_snowflake_rows.renew_worker, lease, LeaseClaim(lease, 2000, until))
    (now,) = database.run(node_and_snowflake_rows.fetch_workers)

    assert not database.run(node_and_snowflake_rows.take_worker, seen, replace(seen, holder="other", until=9000))
    assert now.until == 5000
    database.close()
