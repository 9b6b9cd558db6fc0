"""PostgreSQL, by psycopg 3: only what differs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, Insert, Table, text

from allocator.database.dialect import MAX_CONNECT_SECONDS, NOWHERE, Blind, Dialect, run_of
from allocator.database.postgresql.id_sequences import (
    REPLACE,
    REPLACE_UNORDERED,
    draw,
    greatest_ticket,
    number_from,
    skip_nodes,
    skip_tickets,
)
from allocator.database.postgresql.identity import (
    FIRST,
    NOT_READY,
    NOTHING,
    REFUSALS,
    RUNGS,
    START,
    find,
    is_merely_like_it,
    rung_of,
    sqlstate,
    unstarted,
)
from allocator.database.schema.tables import CLAIMED
from allocator.database.verbs.tickets import COUNT

if TYPE_CHECKING:
    from allocator.database.verbs.gapless_number_rows import NumberDialect
    from allocator.rules.failover import Here


CLAIMED_THERE = "(" + ", ".join(f"to_regclass('{name}')" for name in CLAIMED) + ")"
SCHEMA_LOCK = 0x616C6C6F6361746F
"""The key of the advisory lock for schema changes: the letters "allocato" as 64 bits."""

MIN_VERSION = (13,)
"""The version assumed of a server that tells none."""

MIN_CONNECT_SECONDS = 2
"""libpq's own lower bound for connect_timeout."""
CANCEL_SECONDS = 1.0
"""On top of the timeout of the call: a cancel needs a new connection, which a frozen server does not answer either."""

ACTIVE = 1
"""libpq's status of a connection whose statement is under way."""

REQUIRES = 160000
"""The first version of libpq with `require_auth`."""


READ_ONLY = "25006"


class PostgreSQL(Dialect):
    name = "postgresql"
    default_driver = "psycopg"
    extra = "postgres"
    index_only = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"  # whatever the role's default is
    replace_ticket, count_ticket = REPLACE, COUNT
    draw = staticmethod(draw)
    ownership = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('allocator_ticket')"
    clock = "CAST(1000 * EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)"
    mends = (
        "(SELECT string_agg(mend, '; ') FROM ("
        "SELECT concat('DROP TRIGGER ', quote_ident(tgname), ' ON ', CAST(tgrelid AS regclass)) AS mend "
        f"FROM pg_trigger WHERE tgrelid IN {CLAIMED_THERE} AND NOT tgisinternal "
        "AND NOT (tgrelid = to_regclass('allocator_segment') "
        "AND tgname IN ('allocator_guard_rows', 'allocator_guard_truncate')) "
        "UNION ALL SELECT concat('DROP RULE ', quote_ident(rulename), ' ON ', CAST(ev_class AS regclass)) "
        f"FROM pg_rewrite WHERE ev_class IN {CLAIMED_THERE}) AS found)"
    )

    def numbers(self, is_mariadb: bool) -> NumberDialect:
        from allocator.database.verbs.gapless_number_rows import NumberDialect

        return NumberDialect(self)

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        return {"connect_timeout": max(MIN_CONNECT_SECONDS, ceil(min(timeout, MAX_CONNECT_SECONDS)))}

    def cautious_args(self, url: URL) -> dict[str, Any]:
        """Arguments with which a server on the network gets no password in clear, whatever it asks for.

        An older libpq has no such argument; there only the rule of hosts protects the password.
        """
        host = url.host or ""
        if not host or host.startswith("/") or url.get_driver_name() != "psycopg" or libpq_version() < REQUIRES:
            return {}
        # A server that asks for no password gets none; SCRAM proves that a server knows ours.
        return {"require_auth": "scram-sha-256" if url.password else "scram-sha-256,none"}

    def on_engine(self, engine: Engine) -> None:
        dialect: Any = engine.dialect
        dialect._get_server_version_info = partial(version_of, dialect._get_server_version_info)
        dialect.allocator_rung = FIRST

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        warnings: list[str] = []
        info["warnings"] = warnings
        info["is_merely_like_it"] = is_merely_like_it(connection)
        if hasattr(connection, "add_notice_handler"):  # psycopg 3, and not a driver of the user's own choice
            # PgBouncer in transaction mode loses prepared statements between transactions.
            connection.prepare_threshold = None
            connection.add_notice_handler(partial(note_warning, warnings))
            connection.wait = waiting_at_most(timeout, connection, connection.wait)

    def before(self, connection: Connection) -> bool:
        info, engine_dialect = connection.info, connection.dialect
        info["warnings"].clear()
        rung = NOTHING if info["is_merely_like_it"] else engine_dialect.allocator_rung  # type: ignore[attr-defined]
        if info.get("rung") is not rung:
            info["rung"], info["run"] = rung, rung.each_start if info["guards_restarts"] else rung.run
        return True

    def leaves_open(self, driver_connection: Any) -> bool:
        # psycopg (`pgconn`) and psycopg2 (`info`) keep the status of the server's last answer; 0 is outside of a
        # transaction.
        told = getattr(driver_connection, "pgconn", None) or getattr(driver_connection, "info", None)
        return bool(getattr(told, "transaction_status", 0))

    def code(self, error: BaseException) -> str:
        code = sqlstate(error)
        if code == NOT_READY and "wal_level" not in str(error):
            return READ_ONLY
        return code or ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        with self.transaction(connection):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{ceil(timeout)}s'")
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
            yield

    def is_refusal(self, error: BaseException) -> bool:
        return sqlstate(error) in REFUSALS

    find_identity = staticmethod(find)

    def runs(self, connection: Connection, guards_restarts: bool) -> Iterator[str]:
        for rung in (NOTHING,) if is_merely_like_it(connection.connection.dbapi_connection) else RUNGS:
            yield rung.each_start if guards_restarts else rung.run

    def blind(self, connection: Connection) -> Blind | None:
        connection.exec_driver_sql(f"SELECT {run_of(connection)}")  # if this fails, `run` finds the rung
        return rung_of(connection).blind

    def here(self, connection: Connection, facts: Any, was: str) -> Here:
        here = super().here(connection, facts, was)
        is_blind = rung_of(connection) is not FIRST and not connection.info["guards_restarts"]
        return here._replace(akin=is_blind and was != here.run and unstarted(was) == unstarted(here.run))

    def server(self, connection: Connection) -> str:
        return rung_of(connection).server

    def place(self, connection: Connection) -> str:
        rung = rung_of(connection)
        return f"concat({rung.server}, {START})" if rung is not NOTHING else NOWHERE

    def lasting(self, connection: Connection) -> str:
        return rung_of(connection).lasting

    def replacing(self, connection: Connection) -> str:
        return REPLACE_UNORDERED if rung_of(connection) is NOTHING else REPLACE

    def insert_missing(self, table: Table) -> Insert:
        from sqlalchemy.dialects.postgresql import insert  # a process that uses another database need not load it

        return insert(table).on_conflict_do_nothing(index_elements=list(table.primary_key))

    skip_nodes = staticmethod(skip_nodes)
    skip_tickets = staticmethod(skip_tickets)
    greatest_ticket = staticmethod(greatest_ticket)
    number_from = staticmethod(number_from)

    def lock_shard(self, connection: Connection) -> None:
        if rung_of(connection) is NOTHING:  # CockroachDB has no LOCK TABLE
            connection.exec_driver_sql("SELECT id FROM allocator_shard FOR UPDATE").all()
            return
        # A statement that waits for this lock takes its snapshot after it, and sees the new revision.
        connection.exec_driver_sql(
            "LOCK TABLE allocator_shard, allocator_ticket, allocator_ticket_counter, allocator_segment "
            "IN EXCLUSIVE MODE"
        )


def version_of(ask: Callable[[Connection], tuple[int, ...]], connection: Connection) -> tuple[int, ...]:
    """The version: SQLAlchemy refuses a server not named PostgreSQL; CockroachDB tells the version it follows."""
    try:
        return ask(connection)
    except AssertionError:
        version = str(connection.exec_driver_sql("SHOW server_version").scalar())
        return tuple(int(part) for part in version.split(maxsplit=1)[0].split(".") if part.isdecimal()) or MIN_VERSION


def note_warning(warnings: list[str], diagnostic: Any) -> None:
    """Collect warnings: a cancelled wait for synchronous replication reports success with a warning."""
    if diagnostic.severity_nonlocalized == "WARNING":
        warnings.append(diagnostic.message_primary or "")


def waiting_at_most(seconds: float, connection: Any, wait: Callable[..., Any]) -> Callable[..., Any]:
    """Psycopg's `Connection.wait` with a timeout.

    A frozen server or a network that drops packets never ends a statement, and `statement_timeout` is enforced by the
    server. psycopg's wait wakes up every tenth of a second, which is the precision of the timeout.
    """

    def waiting(generator: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return wait(ending(connection, seconds, generator), *args, **kwargs)
        except BaseException:  # as of a signal handler
            if connection.pgconn.transaction_status == ACTIVE:
                give_up(connection)
            raise

    return waiting


def give_up(connection: Any) -> None:
    """Cancel the statement in the server too, if it answers: else it would claim later, for nobody."""
    with suppress(Exception):
        connection.cancel_safe(timeout=CANCEL_SECONDS)
    connection.close()


def ending(connection: Any, seconds: float, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    end = monotonic() + seconds
    try:
        wanted = next(generator)
        while True:
            ready = yield wanted
            if not ready and monotonic() > end:
                from psycopg import OperationalError

                give_up(connection)
                raise OperationalError(f"no answer within {seconds:g} seconds")
            wanted = generator.send(ready)
    except StopIteration as stop:
        return stop.value


def libpq_version() -> int:
    from psycopg import pq

    return pq.version()
