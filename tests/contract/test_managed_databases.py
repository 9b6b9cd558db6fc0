"""Ids on databases that refuse some of what a PostgreSQL or MySQL of one's own allows; see `lookalikes`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import psycopg
import pymysql
import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url
from support.applications.faces import PATIENT
from support.distinct import distinct
from support.documents.pages import SERVICE, granted
from support.faults.ill_databases import changed, named
from support.faults.wire import counted
from support.servers.administrator import execute
from support.servers.databases import with_schema

from allocator import Allocator
from allocator.database.dialect import Blind, Dialect
from allocator.database.store import Database
from allocator.doctor import examine
from allocator.errors import DatabaseRefused

REFUSED = """CREATE FUNCTION says.{name}() RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '{words}' USING ERRCODE = '{code}'; END $$"""


def refused(name: str, returns: str, words: str = "permission denied for this function", code: str = "42501") -> str:
    """A function that refuses, in place of the server's own."""
    return REFUSED.format(name=name, returns=returns, words=words, code=code)


def answers(name: str, returns: str, value: str) -> str:
    return f"CREATE OR REPLACE FUNCTION says.{name} RETURNS {returns} LANGUAGE sql AS $$ SELECT {value} $$"


OF_AURORA = "Function pg_current_wal_lsn() is currently not supported for Aurora"
FSYNC = "CASE name WHEN 'fsync' THEN 'off' ELSE pg_catalog.current_setting(name) END"
NO_WAL = refused("pg_current_wal_lsn", "pg_lsn", "wal_level must be set to ''logical''", "55000")
NO_WAL_BEFORE = refused("pg_current_wal_lsn", "pg_lsn", OF_AURORA, "0A000")
NO_CONTROL = refused("pg_control_system", "TABLE (pg_control_version integer, system_identifier bigint)")
NO_START = refused("pg_postmaster_start_time", "timestamptz")
IS_AURORA = answers("aurora_version()", "text", "'17.4.0'")
NO_FSYNC = answers("current_setting(name text)", "text", FSYNC)


def address(last: str) -> str:
    return answers("inet_server_addr()", "inet", f"CAST('10.0.0.{last}' AS inet)")


def start(day: str) -> str:
    return answers("pg_postmaster_start_time()", "timestamptz", f"CAST('2026-01-0{day} 00:00:00+00' AS timestamptz)")


def branch(number: str) -> str:
    return f"ALTER DATABASE {{database}} SET neon.timeline_id = '{number * 32}'"


class LookAlike(NamedTuple):
    """What such a product says, what changes with a failover or restart of it, and what the doctor finds.

    moved: afterwards the guard skips ids. stays: afterwards nothing is skipped. `{database}` is filled in.
    """

    says: tuple[str, ...]
    finds: str = ""
    moved: str = ""
    stays: str = ""


PARTLY, SLEEPS = "guard-partly-blind", "guard-sleeps"
POSTGRES = {
    "Aurora": LookAlike((NO_WAL, IS_AURORA, address("1"), start("1")), PARTLY, address("2"), start("2")),
    "an older Aurora": LookAlike((NO_WAL_BEFORE, IS_AURORA, address("1")), PARTLY, address("2"), start("2")),
    "Aurora without control": LookAlike(
        (NO_WAL, IS_AURORA, NO_CONTROL, address("1")), PARTLY, address("2"), start("2")
    ),
    "Neon": LookAlike((branch("a"), NO_FSYNC, start("1")), "", branch("b"), start("2")),
    "no WAL": LookAlike((NO_WAL_BEFORE, start("1"), address("1")), PARTLY, start("2"), address("2")),
    "no WAL and control": LookAlike((NO_WAL, NO_CONTROL, start("1"), address("1")), PARTLY, start("2"), address("2")),
    "nothing": LookAlike((NO_WAL, NO_CONTROL, NO_START), SLEEPS, "", address("2")),
}


def turn(url: str, *statements: str) -> None:
    database = make_url(url).database
    execute(url, *(one.replace("{database}", str(database)) for one in statements))


def look_alike(url: str, one: LookAlike) -> None:
    """Let an empty database be one, for every new connection, and then give it the schema."""
    path = "ALTER DATABASE {database} SET search_path = says, pg_catalog, public"
    turn(url, "CREATE SCHEMA says", *one.says, path)
    with_schema(url)


# -- others than PostgreSQL and MySQL, by a driver that refuses


class CockroachInfo(psycopg.ConnectionInfo):
    def parameter_status(self, param_name: str) -> str | None:
        return "v25.2.0" if param_name == "crdb_version" else super().parameter_status(param_name)


class Cockroach(psycopg.Connection[Any]):
    """Says that it is CockroachDB, and refuses what that does not have."""

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return CockroachInfo(self.pgconn)


REFUSED_BY_COCKROACH = ("LOCK TABLE", "SKIP LOCKED", "PG_CONTROL_", "PG_WALFILE", "PG_CURRENT_WAL", "TO_REGPROC")


class CockroachCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, *said: Any, **named: Any) -> Any:
        if found := [words for words in REFUSED_BY_COCKROACH if words in str(query).upper()]:
            raise psycopg.errors.FeatureNotSupported(f"unimplemented: {found[0]} is not supported")
        return super().execute(query, *said, **named)


REFUSED_BY_TIDB = {
    "LOCK IN SHARE MODE": (1235, "function LOCK IN SHARE MODE has only noop implementation in tidb now"),
    "JSON_TABLE": (1064, "You have an error in your SQL syntax; check the manual"),
    "UUID_SHORT": (1305, "FUNCTION UUID_SHORT does not exist"),
}


REFUSED_BY_OCEANBASE = {
    "18446744073709551615": (1231, "Variable 'sql_select_limit' can't be set to the value of '18446744073709551615'"),
    "ascii": (1273, "Unknown collation: 'ascii_bin'"),
    "global_status": (1146, "Table 'performance_schema.global_status' doesn't exist"),
    "SHOW SLAVE": (1064, "You have an error in your SQL syntax; check the manual"),
    "SHOW REPLICA": (1064, "You have an error in your SQL syntax; check the manual"),
}


class TiDB(pymysql.Connection):
    """Says that it is TiDB, and refuses what that does not have."""

    says, refuses = "8.0.11-TiDB-v8.5.0", REFUSED_BY_TIDB

    def connect(self, sock: Any = None) -> None:
        super().connect(sock)
        self.server_version = self.says

    def _execute_command(self, command: int, sql: Any) -> None:
        told = sql.decode() if isinstance(sql, bytes) else str(sql)
        if error := next((error for words, error in self.refuses.items() if words in told), None):
            raise pymysql.err.NotSupportedError(*error)
        super()._execute_command(command, self.told(told))

    def told(self, words: str) -> str:
        """What is said in its place to the server that it is."""
        return words


class OceanBase(TiDB):
    """Its greeting is that of an old MySQL, and SQLAlchemy cannot read how it describes a key, as MariaDB's IGNORED."""

    says, refuses = "5.7.25", REFUSED_BY_OCEANBASE

    def told(self, words: str) -> str:
        return words.replace("VERSION()", f"'{self.says}-OceanBase'").replace("UNIQUE (type)", "UNIQUE (type) IGNORED")


def cockroach(url: str) -> Engine:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return create_engine(url, creator=lambda: Cockroach.connect(plain, cursor_factory=CockroachCursor))


def like_mysql(url: str, kind: type[TiDB]) -> Engine:
    at = make_url(url).set(drivername="mysql+pymysql")
    place = dict(host=at.host, port=at.port, user=at.username, password=at.password, database=at.database)
    return create_engine(at, creator=lambda: kind(**place, client_flag=pymysql.constants.CLIENT.FOUND_ROWS))


DRIVERS: dict[str, tuple[str, Callable[[str], Engine]]] = {
    "CockroachDB": ("postgres", cockroach),
    "TiDB": ("mariadb", lambda url: like_mysql(url, TiDB)),
    "OceanBase": ("mariadb", lambda url: like_mysql(url, OceanBase)),
}


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


def blind(connection: Connection, dialect: Dialect) -> Blind | None:
    return dialect.blind(connection)


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


def test_the_doctor_says_what_the_guard_does_not_see(url, product):
    found = named(examine(url))

    assert {PARTLY, SLEEPS} & found.keys() == ({product.finds} if product.finds else set())
    if product.finds:
        assert "pg_current_wal_lsn()" in found[product.finds].mend


def test_the_look_is_one_for_all_connections_of_a_process(new_database):
    url = new_database("postgres")
    look_alike(url, POSTGRES["Aurora without control"])
    with counted(url) as asked, Allocator(url, step=1, max_step=1) as ids, ThreadPoolExecutor(4) as pool:
        ids.next_id("order")
        looks = len([words for words in asked if "pg_is_in_recovery" in words])
        list(pool.map(lambda number: ids.next_id(f"tag-{number}"), range(12)))

        assert looks == 3
        assert len([words for words in asked if "pg_is_in_recovery" in words]) == looks


FUNCTIONS = "EXECUTE ON FUNCTION pg_control_system(), pg_current_wal_lsn(), pg_walfile_name(pg_lsn)"


@pytest.fixture
def owner(new_database) -> str:
    """The URL of the schema's owner."""
    return with_schema(new_database("postgres"))


@pytest.fixture
def role(owner: str) -> Iterator[str]:
    """The URL of a user with the rights of the page."""
    url = make_url(owner).set(username=f"{make_url(owner).database}_plain", password="Secret-1")
    made = f"CREATE ROLE {url.username} LOGIN PASSWORD 'Secret-1'"
    with changed(owner, made, (f"DROP OWNED BY {url.username}", f"DROP ROLE {url.username}")):
        execute(owner, *granted("postgres", SERVICE, url.username))
        yield url.render_as_string(hide_password=False)


def test_a_role_that_may_call_none_of_these_functions_draws_ids(owner, role):
    """Once with a gap, if another role that may was here before: it tells the server by another name."""
    execute(owner, f"REVOKE {FUNCTIONS} FROM PUBLIC")
    first = first_id(role)

    assert [first_id(role) for _ in range(3)] == [first + 1, first + 2, first + 3]
    assert "system identifier" in named(examine(role))[PARTLY].found
    execute(owner, f"GRANT {FUNCTIONS} TO {make_url(role).username}")
    assert PARTLY not in named(examine(role))


def test_a_process_that_runs_goes_on_when_such_a_right_is_taken_away(owner, role):
    """Its connection knows a statement by then that calls the functions."""
    with Allocator(role, step=1, max_step=1) as ids:
        drawn = [ids.next_id("order") for _ in range(3)]
        execute(owner, f"REVOKE {FUNCTIONS} FROM PUBLIC")
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
        database.run(blind)

        with pytest.raises(DatabaseRefused, match="a fleet needs servers"):
            database.check_owner()


@pytest.mark.filterwarnings("ignore:Unknown schema content")
def test_ids_of_every_kind_are_drawn_by_an_engine_that_refuses(engine):
    draws_all(engine)
    with closing(Database(engine)) as database:
        assert database.run(blind).sleeps
        database.mark_restored()
    assert first_id(engine) > LEAST
    if engine.name == "mysql":
        assert [finding.name for finding in examine(engine)] == [SLEEPS]
