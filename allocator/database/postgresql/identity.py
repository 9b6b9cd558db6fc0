"""How a PostgreSQL identifies itself: a ladder of SQL expressions, because managed databases refuse some functions.

The first rung is assumed, so an ordinary server is never asked. When a statement fails because of it, `find` looks once
for the first rung that works.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import ASLEEP, NOWHERE, Blind

NOT_READY = "55000"
"""The code of a standby that cannot read its WAL position. Aurora's writer raises it too, and names `wal_level`."""
REFUSALS = frozenset({NOT_READY, "0A000", "42501", "42883"})
"""A server refuses a function, or lacks it: the next rung is tried. Any other error is raised."""

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
ALWAYS = "1 = 1"
INSTEAD = "ids skip a gap after each start of the server (on Aurora: when the address of the writer changes)"


class Rung(NamedTuple):
    """SQL expressions for the server and its database, for the server run, and for the run where each start counts."""

    server: str
    run: str
    each_start: str
    lasting: str = LASTING
    blind: Blind | None = None


def rung(server: str, process: str, start: str, blind: Blind | None = None) -> Rung:
    server, process = (f"coalesce({NEON}, {words}), '/', {DATABASE}" for words in (server, process))
    run = f"{process}, '/', {TABLE}"
    return Rung(f"concat({server})", f"concat({run}, {start})", f"concat({run}, {START})", blind=blind)


WAL = "GRANT EXECUTE ON FUNCTION pg_current_wal_lsn(), pg_walfile_name(pg_lsn){0} TO the role, and start anew all that "
WAL += "draws ids; a managed database may not allow it"
CONTROL = WAL.format(", pg_control_system()")
FIRST, *_, NOTHING = RUNGS = (
    rung(
        f"concat({SYSTEM}, '/', {TIMELINE})",
        f"concat({SYSTEM}, '/', {TIMELINE})",
        f"CASE WHEN {IS_DURABLE} THEN '' ELSE {START} END",
    ),
    rung(
        f"concat({SYSTEM}, '/', {ADDRESS})",
        f"concat({SYSTEM}, '/', {PROCESS})",
        "''",
        Blind(f"the failover guard cannot read the WAL position: {INSTEAD}", WAL.format("")),
    ),
    rung(
        ADDRESS,
        PROCESS,
        "''",
        Blind(f"the failover guard can read neither system identifier nor WAL position: {INSTEAD}", CONTROL),
    ),
    Rung(NOWHERE, NOWHERE, NOWHERE, ALWAYS, ASLEEP._replace(mend=f"{ASLEEP.mend}; or, on PostgreSQL, {CONTROL}")),
)


def rung_of(connection: Connection) -> Rung:
    """The rung of this connection's engine; the last where somebody else opened it."""
    if connection.info.get("is_merely_like_it"):
        return NOTHING
    found: Rung = getattr(connection.dialect, "allocator_rung", NOTHING)
    return found


def find(connection: Connection) -> bool:
    """Find the first rung that works, for the whole engine. True unless it was and stays the first."""
    before = rung_of(connection)
    for found in RUNGS[:-1]:
        try:
            asked = f"SELECT pg_is_in_recovery(), {found.server}, {found.run}, {found.each_start}"
            if connection.exec_driver_sql(asked).one()[0]:
                return False  # a standby refuses some of it, whatever its rights
        except DBAPIError as error:
            if sqlstate(error.orig) not in REFUSALS:
                raise
            if sqlstate(error.orig) == NOT_READY and "wal_level" not in str(error.orig):
                return False  # a standby, which may be promoted before the next rung is asked
        else:
            break
    else:
        found = NOTHING
    dialect: Any = connection.dialect
    dialect.allocator_rung = found
    return not found is before is FIRST


def sqlstate(error: object) -> str | None:
    code: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code


def is_merely_like_it(connection: Any) -> bool:
    """CockroachDB and YugabyteDB have no such WAL, and commit on several servers."""
    status = getattr(getattr(connection, "info", None), "parameter_status", lambda name: "")
    return bool(status("crdb_version")) or "-YB-" in (status("server_version") or "")
