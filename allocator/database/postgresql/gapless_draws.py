"""Draw numbers without gaps in a transaction of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.verbs.gapless_number_rows import (
    INSERT,
    KEY,
    RAISE,
    NumberDialect,
    Parameters,
    drawing,
    first_of,
)

if TYPE_CHECKING:
    from allocator.database.caller import Caller


class PostgreSQLNumbers(NumberDialect):
    draws_soon = (
        "WITH waiting AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, "
        "set_config('lock_timeout', :wait, true) AS now) "
        f"{INSERT} SELECT CAST(:name AS VARCHAR), CAST(:scope AS VARCHAR), CAST(:period AS VARCHAR), {{first}} "
        f"FROM waiting WHERE now IS NOT NULL {RAISE} "
        "RETURNING n, set_config('lock_timeout', (SELECT before FROM waiting), true)"
    )
    """Sets the timeout of the transaction, and restores it; after an error, the savepoint does."""
    holder = (
        "SELECT CASE WHEN has_it OR drawing = 1 THEN CAST(pid AS text) "
        "ELSE pid || ', the oldest of ' || drawing || ' that draw' END, usename, client_addr, application_name FROM "
        "(SELECT a.pid, usename, client_addr, application_name, xact_start, count(*) OVER () AS drawing, "
        "EXISTS (SELECT FROM pg_locks h WHERE h.pid = a.pid AND h.locktype = 'transactionid' AND h.granted "
        f"AND h.transactionid = (SELECT xmax FROM allocator_number WHERE {KEY})) AS has_it "
        "FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid AND l.granted AND l.mode = 'RowExclusiveLock' "
        "AND l.relation = CAST('allocator_number' AS regclass) "
        "WHERE datname = current_database() AND a.pid <> pg_backend_pid()) s ORDER BY has_it DESC, xact_start LIMIT 1"
    )
    """The row names its transaction, unless it is new or was drawn in a savepoint, as with `wait`."""

    def draw_soon(self, caller: Caller, row: Parameters, first: int, count: int, wait: float) -> int | None:
        milliseconds = {"wait": f"{max(1, ceil(1000 * wait))}ms"}  # 0 would be for ever
        with savepoint(caller):
            return first_of(caller.fetch(drawing(self.draws_soon, first, count), {**row, **milliseconds}))

    def fetch_holder(self, caller: Caller, row: Parameters) -> str:
        with savepoint(caller):
            return super().fetch_holder(caller, row)


@contextmanager
def savepoint(caller: Caller) -> Iterator[None]:
    """Keep the caller's transaction alive after an error, which would end it on PostgreSQL."""
    caller.run("SAVEPOINT allocator_number", {})
    try:
        yield
    except SQLAlchemyError:
        with suppress(SQLAlchemyError):  # the connection may be lost
            caller.run("ROLLBACK TO SAVEPOINT allocator_number", {})
            caller.run("RELEASE SAVEPOINT allocator_number", {})
        raise
    caller.run("RELEASE SAVEPOINT allocator_number", {})
