"""Meteor and snowflake out of the database, on every one and through both faces."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from support.distinct import distinct
from support.kit import OF_THE_RULE, ON_POSTGRES, SQLITE, database_of
from support.rules import rule
from support.servers.administrator import execute, opened

from allocator import Allocator, Layout, MeteorSettings, SnowflakeSettings, inspect_id
from allocator.database.store import Database
from allocator.database.verbs import node_rows, worker_number_rows
from allocator.errors import DatabaseUnavailable, Exhausted, InvalidSetting, MaxValueWentBack, NodeIdsExhausted
from allocator.schemes.snowflake import EPOCH

OVER = Layout(sign=1, timestamp=30, datacenter=5, worker=5, sequence=23)
TINY = Layout(sign=1, timestamp=49, datacenter=1, worker=1, sequence=12)


def fields(number: int, scheme: str) -> dict:
    return inspect_id(number, scheme=scheme).readings[0].fields


@pytest.mark.parametrize(
    ("scheme", "count", "holder"), [("meteor", 5000, ["node"]), ("snowflake", 10_000, ["datacenter", "worker"])]
)
def test_ids_increase_under_one_node_or_worker(face, place, scheme, count, holder):
    ids = face(place)
    drawn = [getattr(ids, scheme)() for _ in range(count)]

    assert distinct(drawn)
    assert sorted(drawn) == drawn
    assert len({tuple(fields(number, scheme)[part] for part in holder) for number in drawn}) == 1
    assert abs(inspect_id(drawn[0], scheme=scheme).readings[0].time.timestamp() - time.time()) < 60


def node_of(ids: Any) -> int:
    return fields(ids.meteor(), "meteor")["node"]


@OF_THE_RULE
def test_a_node_whose_seconds_ran_out_is_followed_by_another(face, place):
    layout = Layout(sign=1, second=8, node=51, sequence=2, random=2)
    ids = face(place, meteor=MeteorSettings(epoch=int(time.time()) - 200, layout=layout))
    nodes = [layout.unpack(ids.meteor())["node"] for _ in range(300)]  # 56 seconds of 4 ids are left to each

    assert nodes == sorted(nodes)
    assert len({*nodes}) >= 2


RESTARTED = {
    "sqlite": "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'allocator_node'",
    "postgres": "ALTER TABLE allocator_node ALTER COLUMN id RESTART WITH 1",
    **dict.fromkeys(["mysql", "mariadb"], "ALTER TABLE allocator_node AUTO_INCREMENT = 1"),
}


def node_at(url: str) -> int:
    with Allocator(url) as ids:
        return node_of(ids)


@rule(9)
def test_node_numbers_are_not_used_again_after_a_restart_of_the_counter(fresh, kind):
    assert [node_at(fresh), node_at(fresh)] == [1, 2]
    execute(fresh, RESTARTED[kind])
    try:
        assert node_at(fresh) == 3
    except MaxValueWentBack as error:
        assert "counter" in str(error)  # noqa: PT017


@rule(9)
def test_a_number_whose_row_was_deleted_is_not_given_again(fresh):
    node = node_at(fresh)
    execute(fresh, "DELETE FROM allocator_node")

    assert node_at(fresh) > node


@rule(9)
@SQLITE
def test_control_without_autoincrement_a_number_whose_row_was_deleted_comes_again(fresh):
    node = node_at(fresh)
    with opened(fresh) as engine, engine.begin() as connection:
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'allocator_node'").scalar_one()
        connection.exec_driver_sql("DROP TABLE allocator_node")
        connection.exec_driver_sql(made.replace(" AUTOINCREMENT", ""))

    assert node_at(fresh) == node


@SQLITE
def test_a_node_beyond_the_layout_is_refused(face, fresh):
    layout = Layout(sign=1, second=50, node=1, sequence=10, random=2)
    face(fresh).meteor()
    with pytest.raises(NodeIdsExhausted, match="node 2 does not fit the layout 1/50/1/10/2"):
        face(fresh, meteor=MeteorSettings(layout=layout)).meteor()


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


@SQLITE
def test_a_format_whose_time_has_not_come_leases_nothing(face, fresh):
    for settings in (SnowflakeSettings(epoch=4_000_000_000_000), SnowflakeSettings(layout=OVER)):
        with pytest.raises((InvalidSetting, Exhausted)):
            face(fresh, snowflake=settings).snowflake()

    assert face(fresh).snowflake() > 0


@rule(9)
@ON_POSTGRES
def test_a_node_or_lease_whose_commit_came_with_a_warning_is_not_used(fresh):
    execute(
        fresh,
        "CREATE FUNCTION warn() RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'canceling wait'; RETURN true; END $$",
        "ALTER TABLE allocator_node ADD CHECK (warn())",
        "ALTER TABLE allocator_lease ADD CHECK (warn())",
    )
    with Allocator(fresh, timeout=2) as ids:
        ids.ping()
        for call in (ids.meteor, ids.snowflake):
            with pytest.raises(DatabaseUnavailable, match="came with a warning"):
                call()


@rule(9)
def test_nodes_are_listed_with_who_started(fresh):
    for _ in range(2):
        with Allocator(fresh) as ids:
            ids.meteor()
            found, *before = database_of(ids).run(node_rows.fetch_newest, 10)

    assert found.number == 2
    assert [node.number for node in before] == [1], "no row is ever deleted"
    assert found.host
    assert abs(found.started_at.timestamp() - time.time()) < 60


def test_two_allocators_have_two_workers(face, place):
    one, two = face(place), face(place)
    drawn = [number for _ in range(500) for number in (one.snowflake(), two.snowflake())]

    assert distinct(drawn)


@SQLITE
def test_another_layout_epoch_or_length_is_refused_for_ever(face, fresh):
    face(fresh).snowflake()
    execute(fresh, "UPDATE allocator_lease SET until_ms = 0, used_until_ms = 0")
    for settings in ({"layout": TINY}, {"epoch": 0}, {"lease": 30}):
        with pytest.raises(InvalidSetting, match="all processes of a space must use the same. To change them, stop"):
            face(fresh, snowflake=SnowflakeSettings(**settings)).snowflake()


@SQLITE
def test_closing_gives_the_worker_back_with_the_last_time_in_use(face, fresh):
    ids = face(fresh)
    last = fields([ids.snowflake() for _ in range(10_000)][-1], "snowflake")["timestamp"] + EPOCH
    ids.close()
    with closing(Database(fresh)) as database:
        ((row,),) = (rows for rows in database.run(worker_number_rows.fetch_all)[1].values())

    assert row.holder == ""
    assert last <= row.used_until_ms <= time.time() * 1000 + 1
