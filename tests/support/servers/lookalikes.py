"""Real databases that refuse what a managed one refuses; only what was said or seen of the product is imitated.

On PostgreSQL by functions of the same name in a schema that the database searches before `pg_catalog`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
import pymysql
from sqlalchemy import Engine, create_engine, make_url

from support.servers.administrator import execute
from support.servers.databases import with_schema

REFUSED = """CREATE FUNCTION says.{name}() RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '{words}' USING ERRCODE = '{code}'; END $$"""
ANSWERS = "CREATE OR REPLACE FUNCTION says.{name} RETURNS {returns} LANGUAGE sql AS $$ SELECT {value} $$"


def refused(name: str, returns: str, words: str, code: str) -> str:
    """A function that refuses, in place of the server's own."""
    return REFUSED.format(name=name, returns=returns, words=words, code=code)


NO_WAL = refused("pg_current_wal_lsn", "pg_lsn", "wal_level must be set to ''logical''", "55000")
NO_WAL_BEFORE = refused(
    "pg_current_wal_lsn", "pg_lsn", "Function pg_current_wal_lsn() is currently not supported for Aurora", "0A000"
)
NO_CONTROL = refused(
    "pg_control_system",
    "TABLE (pg_control_version integer, system_identifier bigint)",
    "permission denied for function pg_control_system",
    "42501",
)
NO_START = refused(
    "pg_postmaster_start_time", "timestamptz", "permission denied for function pg_postmaster_start_time", "42501"
)
IS_AURORA = ANSWERS.format(name="aurora_version()", returns="text", value="'17.4.0'")
NO_FSYNC = ANSWERS.format(
    name="current_setting(name text)",
    returns="text",
    value="CASE name WHEN 'fsync' THEN 'off' ELSE pg_catalog.current_setting(name) END",
)
BRANCH = "ALTER DATABASE {database} SET neon.timeline_id = '{0}'"


def address(last: str) -> str:
    return ANSWERS.format(name="inet_server_addr()", returns="inet", value=f"CAST('10.0.0.{last}' AS inet)")


def start(day: str) -> str:
    value = f"CAST('2026-01-0{day} 00:00:00+00' AS timestamptz)"
    return ANSWERS.format(name="pg_postmaster_start_time()", returns="timestamptz", value=value)


def branch(number: str) -> str:
    return BRANCH.replace("{0}", number * 32)


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
