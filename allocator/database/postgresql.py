"""PostgreSQL, by psycopg 3: only what differs, as how a server identifies itself, and the waits for it.

A server identifies itself by a ladder of SQL expressions, because managed databases refuse some functions. The first
rung is assumed, so an ordinary server is never asked. When a statement fails because of it, `find_identity` looks
once for the first rung that works.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, TextClause, column, func, select, table, text
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import ASLEEP, NOWHERE, SKIPPED, Blind, Dialect, Words, guards_restarts, transaction
from allocator.database.driver_errors import READ_ONLY, REFUSALS, has_code
from allocator.database.tables import CLAIMED, node
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag_column import Counter

NOT_READY = "55000"
"""The code of a standby that cannot read its WAL position. Aurora's writer raises it too, and names `wal_level`."""

NEON = "current_setting('neon.timeline_id', true)"
AURORA = "to_regproc('aurora_version') IS NOT NULL"
SYSTEM = "(pg_control_system()).system_identifier"
TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
"""A promoted standby begins a new timeline."""
ADDRESS = "coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'socket')"
START = "concat('@', CAST(1000000 * EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS BIGINT))"
"""`concat` and not `||`, here and below: to parse each operator costs a claim more than to evaluate its operands."""
DATABASE = "substring(pg_relation_filepath('pg_class') FROM '/([0-9]+)/[0-9]+$')"
"""The database's oid. No subquery, which would cost a claim more than its row."""
TABLE = "CAST(to_regclass('allocator_segment') AS oid)"
"""The table's oid: VACUUM FULL keeps it, a restored dump does not."""
IS_DURABLE = f"concat(current_setting('fsync'), current_setting('full_page_writes')) = 'onon' OR {NEON} IS NOT NULL"
"""Neon's storage keeps every commit, whatever these settings say. Aurora never uses the first rung."""
PROCESS = f"CASE WHEN {AURORA} THEN {ADDRESS} ELSE {START} END"
"""Replaces the timeline: a promoted standby is another server process. On Aurora the address tells a promotion, and the
start does not. Elsewhere the address does not count, because one server may have several."""
LASTING = "(current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) = 'on')"
"""Overrides the setting of the role or database: else a crash of the server's processes could lose commits."""
INSTEAD = "ids skip a gap after each start of the server (on Aurora: when the address of the writer changes)"


class Rung(NamedTuple):
    """SQL expressions for the server run, and for the run where each start counts."""

    run: str
    each_start: str
    blind: Blind | None = None


def rung(process: str, start: str, blind: Blind | None = None) -> Rung:
    run = f"coalesce({NEON}, {process}), '/', {DATABASE}, '/', {TABLE}"
    return Rung(f"concat({run}, {start})", f"concat({run}, {START})", blind)


WAL = "GRANT EXECUTE ON FUNCTION pg_current_wal_lsn(), pg_walfile_name(pg_lsn){0} TO the role, and start anew all that "
WAL += "draws ids; a managed database may not allow it"
CONTROL = WAL.format(", pg_control_system()")
FIRST, *_, NOTHING = RUNGS = (
    rung(f"concat({SYSTEM}, '/', {TIMELINE})", f"CASE WHEN {IS_DURABLE} THEN '' ELSE {START} END"),
    rung(
        f"concat({SYSTEM}, '/', {PROCESS})",
        "''",
        Blind(f"the failover guard cannot read the WAL position: {INSTEAD}", WAL.format("")),
    ),
    rung(
        PROCESS,
        "''",
        Blind(f"the failover guard can read neither system identifier nor WAL position: {INSTEAD}", CONTROL),
    ),
    Rung(NOWHERE, NOWHERE, ASLEEP._replace(mend=f"{ASLEEP.mend}; or, on PostgreSQL, {CONTROL}")),
)

CLAIMED_THERE = "(" + ", ".join(f"to_regclass('{name}')" for name in CLAIMED) + ")"
MENDS = (
    "(SELECT string_agg(mend, '; ') FROM ("
    "SELECT concat('DROP TRIGGER ', quote_ident(tgname), ' ON ', CAST(tgrelid AS regclass)) AS mend "
    f"FROM pg_trigger WHERE tgrelid IN {CLAIMED_THERE} AND NOT tgisinternal "
    "AND NOT (tgrelid = to_regclass('allocator_segment') "
    "AND tgname IN ('allocator_guard_rows', 'allocator_guard_truncate')) "
    "UNION ALL SELECT concat('DROP RULE ', quote_ident(rulename), ' ON ', CAST(ev_class AS regclass)) "
    f"FROM pg_rewrite WHERE ev_class IN {CLAIMED_THERE}) AS found)"
)
"""See `Words.mends`."""
SCHEMA_LOCK = 0x616C6C6F6361746F
"""The key of the advisory lock for schema changes: the letters "allocato" as 64 bits."""

MIN_VERSION = (13,)
"""The version assumed of a server that tells none."""

MIN_CONNECT_SECONDS = 2
"""libpq's own lower bound for connect_timeout."""
CANCEL_SECONDS = 1.0
"""On top of the timeout of the call: a cancel needs a new connection, which a frozen server does not answer either."""

SEQUENCE = """
SELECT nspname, relname, CAST(CAST(seqrelid AS regclass) AS text) AS name, seqincrement, seqmax, seqcycle,
       CASE attidentity WHEN '' THEN concat('ALTER SEQUENCE ', CAST(seqrelid AS regclass)) ELSE
           concat('ALTER TABLE ', :table, ' ALTER ', quote_ident(attname), ' SET GENERATED BY DEFAULT SET') END AS hold,
       (SELECT count(*) FROM pg_depend WHERE classid = 'pg_attrdef'::regclass AND refobjid = seqrelid) AS users
FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = to_regclass(:table) AND attname = :column
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE seqrelid = to_regclass(pg_get_serial_sequence(:table, :column)) AND (attidentity <> '' OR
  pg_get_expr(adbin, adrelid) = format('nextval(%L::regclass)', CAST(seqrelid AS regclass)))
"""
"""That of an identity, or of a default that only draws from it."""

CLOCK = "CAST(1000 * EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)"
DRAW_NODES = text(
    "SELECT max(nextval(pg_get_serial_sequence('allocator_node', 'id'))) FROM generate_series(1, CAST(:n AS BIGINT))"
)


class PostgreSQL(Dialect):
    name = "postgresql"
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"  # whatever the role's default is
    words = Words(
        CLOCK, MENDS, lasting=LASTING, update="FOR UPDATE", at_once="FOR UPDATE SKIP LOCKED", share="FOR SHARE"
    )

    def counter(self, connection: Connection, schema: str, table_name: str, column_name: str) -> Counter:
        place = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table_name) if part)
        one = connection.execute(text(SEQUENCE), {"table": place, "column": column_name}).first()
        if one is None or one.seqcycle or one.seqincrement < 1 or one.users > 1:
            return Counter("a sequence that no statement can hold")
        sequence = table(one.relname, column("last_value"), column("is_called"), schema=one.nspname)
        last, is_called = connection.execute(select(sequence)).one()
        following = last + one.seqincrement if is_called else last
        return Counter(one.name, following, one.seqmax, f"{one.hold} MAXVALUE {{n}}", is_below=True)

    def engine_args(self, driver: str, timeout: float) -> dict[str, Any]:
        seconds = max(MIN_CONNECT_SECONDS, ceil(timeout))
        # A listener of the class Engine comes before SQLAlchemy's autocommit, and would begin a transaction.
        autocommit = {"autocommit": True} if driver == "psycopg" else {}
        return {"connect_args": {"connect_timeout": seconds, "client_encoding": "utf8", **autocommit}}

    def on_connect(
        self, engine: Engine, file: str | None, is_given: bool, timeout: float, connection: Any, record: Any
    ) -> None:
        dialect: Any = engine.dialect
        if not hasattr(dialect, "allocator_rung"):  # the first one
            dialect._get_server_version_info = partial(version_of, dialect._get_server_version_info)
            dialect.allocator_rung = FIRST
        if is_given:
            connection.commit()
        rung = NOTHING if is_merely_like_it(connection) else dialect.allocator_rung
        warnings: list[str] = []
        record.info.update(
            rung=rung,
            allocator_run=rung.each_start if guards_restarts() else rung.run,
            dialect=IMITATION if rung is NOTHING else self,
            warnings=warnings,
        )
        if hasattr(connection, "add_notice_handler"):  # psycopg 3, and not a driver of the user's own choice
            # PgBouncer in transaction mode loses prepared statements between transactions.
            connection.prepare_threshold = None
            connection.add_notice_handler(partial(note_warning, warnings))
            connection.wait = partial(wait_at_most, timeout, connection, connection.wait)

    def leaves_open(self, driver_connection: Any) -> bool:
        # psycopg (`pgconn`) and psycopg2 (`info`) keep the status of the server's last answer; 0 is outside of a
        # transaction.
        told = getattr(driver_connection, "pgconn", None) or getattr(driver_connection, "info", None)
        return bool(getattr(told, "transaction_status", 0))

    def code(self, error: BaseException) -> str:
        code: str = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
        return READ_ONLY if code == NOT_READY and "wal_level" not in str(error) else code

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        with transaction(connection, self):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{ceil(timeout)}s'")
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
            yield

    def find_identity(self, connection: Connection) -> bool:
        """Find the first rung that works, for the whole engine. False if it stays the first, and on a standby."""
        before = connection.info["rung"]
        for found in RUNGS[:-1]:
            try:
                asked = f"SELECT pg_is_in_recovery(), {found.run}, {found.each_start}"
                if connection.exec_driver_sql(asked).one()[0]:
                    return False  # a standby refuses some of it, whatever its rights
            except DBAPIError as error:
                if not has_code(error, REFUSALS, self):
                    raise  # as of a standby, which may be promoted before the next rung is asked
            else:
                break
        else:
            found = NOTHING
        dialect: Any = connection.dialect
        dialect.allocator_rung = found
        return not (found is FIRST and before is FIRST)

    def server_runs(self, connection: Connection) -> Iterator[tuple[str, Dialect]]:
        for rung in (NOTHING,) if is_merely_like_it(connection.connection.dbapi_connection) else RUNGS:
            yield rung.each_start if guards_restarts() else rung.run, IMITATION if rung is NOTHING else self

    def blind(self, connection: Connection) -> Blind | None:
        connection.exec_driver_sql(f"SELECT {connection.info['allocator_run']}")  # if this fails, `run` finds the rung
        rung: Rung = connection.info["rung"]
        return rung.blind

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        end: int | None = connection.execute(claim, parameters).scalar_one_or_none()
        return end

    def skip_nodes(self, connection: Connection, residue: Residue, count: int) -> None:
        # A logical replica has the rows, but not the position of their sequence.
        end = count + (connection.scalar(select(func.max(node.c.id))) or 0)
        last = connection.scalar(DRAW_NODES, {"n": count}) or 0
        if last < end:
            connection.execute(DRAW_NODES, {"n": end - last})
        row = {**SKIPPED, "slot": residue.offset, "slots": residue.step}
        connection.execute(node.insert().values(row))  # `shards add` looks at the rows


class LikePostgreSQL(PostgreSQL):
    """Of an engine that speaks PostgreSQL's protocol, or of a server that does not say which one it is."""

    words = PostgreSQL.words._replace(lasting="1 = 1")


IMITATION = LikePostgreSQL()


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


def wait_at_most(
    seconds: float, connection: Any, wait: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any
) -> Any:
    """Psycopg's `Connection.wait` with a timeout.

    A frozen server or a network that drops packets never ends a statement, and `statement_timeout` is enforced by the
    server. psycopg's wait wakes up every tenth of a second, which is the precision of the timeout.
    """
    return wait(ending(connection, seconds, generator), *args, **kwargs)


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


def is_merely_like_it(connection: Any) -> bool:
    """CockroachDB and YugabyteDB have no such WAL, and commit on several servers."""
    status = getattr(getattr(connection, "info", None), "parameter_status", lambda name: "")
    return bool(status("crdb_version")) or "-YB-" in (status("server_version") or "")
