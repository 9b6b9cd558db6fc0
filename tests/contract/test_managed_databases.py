"""Ids on databases that refuse some of what a PostgreSQL or MySQL of one's own allows; see `lookalikes`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import Engine, make_url
from support.applications.faces import PATIENT
from support.distinct import distinct
from support.documents.rights import SERVICE, granted
from support.faults.ill_databases import changed, named
from support.faults.wire import counted
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.servers.lookalikes import (
    DRIVERS,
    NO_WAL,
    PARTLY,
    POSTGRES,
    SLEEPS,
    LookAlike,
    look_alike,
    turn,
)

from allocator import Allocator
from allocator.database.store import Database
from allocator.database.verbs import servers, shard_row
from allocator.doctor import examine
from allocator.errors import DatabaseRefused

LEAST = 1 << 22


@pytest.fixture(params=POSTGRES)
def product(request: pytest.FixtureRequest) -> LookAlike:
    return POSTGRES[request.param]


@pytest.fixture
def url(new_database, product) -> str:
    made = new_database("postgres")
    look_alike(made, product)
    return made


@pytest.fixture(params=DRIVERS)
def engine(request: pytest.FixtureRequest, new_database) -> Iterator[Engine]:
    kind, make = DRIVERS[request.param]
    made = make(new_database(kind))
    with closing(Database(made, timeout=60)) as database:
        database.upgrade_schema()
    yield made
    made.dispose()


def draws_all(place: object) -> None:
    with Allocator(place, step=5, max_step=5) as ids, Allocator(place, step=5, max_step=5) as others:
        drawn = [ids.next_id("order") for _ in range(40)] + others.next_ids("order", 40)
        assert distinct(drawn) == 80
        assert max(drawn) < 200
        with ThreadPoolExecutor(6) as pool:
            assert len({*pool.map(lambda number: ids.next_id(f"tag-{number % 6}"), range(60))}) >= 10
        assert [ids.ticket("job"), others.ticket("job")] == [1, 2]
        assert distinct([ids.meteor(), others.meteor(), ids.snowflake(), others.snowflake()]) == 4
        assert ids.tags.set("order", step=4).step == 4
        assert "order" in {tag.name for tag in ids.tags.list()}


def first_id(place: object) -> int:
    with Allocator(place, step=1, max_step=1, timeout=PATIENT) as ids:
        return ids.reserve("order", 1)[0]


def told(url: str) -> dict[str, object]:
    words = [sys.executable, "-m", "allocator", "db", "check", "--json", "--url", url]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def test_ids_of_every_kind_are_drawn(url):
    draws_all(url)


def test_a_failover_is_seen_as_far_as_the_product_tells_it(url, product):
    before = first_id(url)
    turn(url, *filter(None, [product.stays]))
    assert first_id(url) == before + 1
    if product.moved:
        turn(url, product.moved)
        assert first_id(url) > LEAST


def test_a_process_that_runs_sees_a_failover_too(new_database):
    url, product = new_database("postgres"), POSTGRES["Aurora"]
    look_alike(url, product)
    with Allocator(url, step=1, max_step=1) as ids:
        before = ids.next_id("order")
        turn(url, product.moved)
        after = [ids.next_id("order") for _ in range(20)]

    assert before == 1
    assert max(after) > LEAST
    assert distinct(after) == 20


def test_the_doctor_and_the_check_say_what_the_guard_does_not_see(url, product):
    found = named(examine(url))
    guard = str(told(url).get("guard", ""))

    assert {PARTLY, SLEEPS} & found.keys() == ({product.finds} if product.finds else set())
    assert bool(guard) == bool(product.finds)
    if guard:
        assert found[product.finds].found in guard
        assert "pg_current_wal_lsn()" in found[product.finds].mend


def test_the_look_is_one_for_all_connections_of_a_process(new_database):
    url = new_database("postgres")
    look_alike(url, POSTGRES["Aurora without control"])
    with counted(url) as (near, asked), Allocator(near, step=1, max_step=1) as ids, ThreadPoolExecutor(4) as pool:
        ids.next_id("order")
        looks = len([words for words in asked.messages if "pg_is_in_recovery" in words])
        list(pool.map(lambda number: ids.next_id(f"tag-{number}"), range(12)))

        assert looks == 3
        assert len([words for words in asked.messages if "pg_is_in_recovery" in words]) == looks


def test_a_role_that_may_call_none_of_these_functions_draws_ids(new_database):
    """Once with a gap, if another role that may was here before: it tells the server by another name."""
    url = with_schema(new_database("postgres"))
    at = make_url(url)
    role = f"{at.database}_plain"
    functions = "pg_control_system(), pg_current_wal_lsn(), pg_walfile_name(pg_lsn)"
    made = (f"CREATE ROLE {role} LOGIN PASSWORD 'Secret-1'", f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC")
    with changed(url, made, (f"DROP OWNED BY {role}", f"DROP ROLE {role}")):
        execute(url, *granted("postgres", SERVICE, role))
        plain = at.set(username=role, password="Secret-1").render_as_string(hide_password=False)
        first = first_id(plain)

        assert [first_id(plain) for _ in range(3)] == [first + 1, first + 2, first + 3]
        assert "system identifier" in named(examine(plain))[PARTLY].found
        execute(url, f"GRANT EXECUTE ON FUNCTION {functions} TO {role}")
        assert PARTLY not in named(examine(plain))


def test_a_process_that_runs_goes_on_when_such_a_right_is_taken_away(new_database):
    """Its connection knows a statement by then that calls the functions."""
    url = with_schema(new_database("postgres"))
    at = make_url(url)
    role = f"{at.database}_less"
    functions = "pg_control_system(), pg_current_wal_lsn(), pg_walfile_name(pg_lsn)"
    with changed(
        url, (f"CREATE ROLE {role} LOGIN PASSWORD 'Secret-1'",), (f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    ):
        execute(url, *granted("postgres", SERVICE, role))
        place = at.set(username=role, password="Secret-1").render_as_string(hide_password=False)
        with Allocator(place, step=1, max_step=1) as ids:
            drawn = [ids.next_id("order") for _ in range(3)]
            execute(url, f"REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC")
            drawn += [ids.next_id("order") for _ in range(6)]

    assert drawn[:3] == [1, 2, 3]
    assert distinct(drawn) == 9


def test_a_right_that_is_missing_is_refused_whatever_the_rung(new_database):
    url = with_schema(new_database("postgres"))
    turn(url, "CREATE SCHEMA says", NO_WAL.replace("pg_current_wal_lsn", "clock_timestamp"))
    turn(url, "ALTER DATABASE {database} SET search_path = says, pg_catalog, public")

    with Allocator(url) as ids, pytest.raises(DatabaseRefused, match="allocator doctor"):
        ids.next_id("order")


def test_a_fleet_is_refused_where_a_server_does_not_say_which_one_it_is(new_database):
    url = new_database("postgres")
    look_alike(url, POSTGRES["nothing"])
    with closing(Database(url)) as database:
        database.run(servers.fetch_blind)

        with pytest.raises(DatabaseRefused, match="a fleet needs servers"):
            database.run(shard_row.check_owner)


@pytest.mark.filterwarnings("ignore:Unknown schema content")
def test_ids_of_every_kind_are_drawn_by_an_engine_that_refuses(engine):
    draws_all(engine)
    with closing(Database(engine)) as database:
        assert database.run(servers.fetch_blind).sleeps
        database.mark_restored()
    assert first_id(engine) > LEAST
    if engine.name == "mysql":
        assert [finding.name for finding in examine(engine)] == [SLEEPS]
