"""What differs between the databases when a number is drawn in the caller's transaction.

One statement inserts or raises the row of a name, scope and period, and returns its new number. The row stays locked
until the caller's transaction ends. The lock timeout is a setting of the caller's session or transaction: it is
restored after the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.dialect import Dialect
from allocator.schemes.gapless_numbers import MAX_NUMBER

if TYPE_CHECKING:
    from allocator.database.caller import Caller

KEY = "name = :name AND scope = :scope AND period = :period"
INSERT = "INSERT INTO allocator_number (name, scope, period, n)"
CONFLICT = "ON CONFLICT (name, scope, period) DO UPDATE SET n ="
RAISE = f"{CONFLICT} allocator_number.n + {{count}}"
RAISE_TO = f"{CONFLICT} CASE WHEN allocator_number.n < {{n}} THEN {{n}} ELSE allocator_number.n END"
DUPLICATE = "ON DUPLICATE KEY UPDATE n ="
VOID = (
    "INTO allocator_number_void (name, scope, period, n, written, reason, voided_at) "
    "VALUES (:name, :scope, :period, {n}, :written, :reason, CURRENT_TIMESTAMP)"
)

Parameters = Mapping[str, object]
"""Name, scope and period of a row. Numbers are in the text: asyncpg would send small ones as a narrower type."""


class NumberDialect:
    """The statements of SQLite and PostgreSQL; the verbs are in `verbs/gapless_number_rows.py`."""

    draws = f"{INSERT} VALUES (:name, :scope, :period, {{first}}) {RAISE} RETURNING n"
    """It begins with INSERT: Python's sqlite3 opens a transaction for INSERT, and not for WITH."""
    raises = f"{INSERT} VALUES (:name, :scope, :period, {{n}}) {RAISE_TO} RETURNING n"
    voids = f"INSERT {VOID} ON CONFLICT DO NOTHING"
    holder = ""
    """A query for the session that holds the row; empty for none."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        """Whether the driver is in autocommit, and no transaction is open."""
        return getattr(connection, "autocommit", False) is True and not self.dialect.leaves_open(driver_connection)

    def lastrowid(self, result: Any) -> int:
        return 0

    def draw(self, caller: Caller, row: Parameters, first: int, count: int, wait: float | None) -> int | None:
        """Raise the row by `count`, or insert it with `first`, and return its new number.

        None, or an error of the database, if fewer numbers are left.
        wait: seconds to wait for a lock; None for the database's own timeout.
        """
        if wait is not None:
            return self.draw_soon(caller, row, first, count, wait)
        return first_of(caller.fetch(drawing(self.draws, first, count), row))

    def draw_soon(self, caller: Caller, row: Parameters, first: int, count: int, wait: float) -> int | None:
        raise NotImplementedError

    def raise_to(self, caller: Caller, row: Parameters, n: int) -> int:
        """Raise the row to at least `n`, and return its new number."""
        found = first_of(caller.fetch(self.raises.format(n=n), row))
        assert found is not None
        return found

    def fetch_holder(self, caller: Caller, row: Parameters) -> str:
        """The session that holds the row; empty if the database does not tell."""
        rows = caller.fetch(self.holder, row) if self.holder else ()
        return holder_in_words(rows[0]) if rows else ""


HOLDER = ("session", "of user", "from", "application")
"""Labels of the columns that a query for the holder returns."""


def holder_in_words(row: Sequence[Any]) -> str:
    return ", ".join(f"{field} {value}" for field, value in zip(HOLDER, row, strict=True) if value)


@lru_cache
def drawing(statement: str, first: int, count: int) -> str:
    return statement.format(first=first, count=count, most=MAX_NUMBER - count)


def first_of(rows: Sequence[Sequence[Any]]) -> int | None:
    return int(rows[0][0]) if rows else None


class SQLiteNumbers(NumberDialect):
    draws = f"{INSERT} VALUES (:name, :scope, :period, {{first}}) {RAISE} WHERE n <= {{most}} RETURNING n"

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        if getattr(driver_connection, "in_transaction", False):
            return False
        return driver_connection.isolation_level is None or getattr(driver_connection, "autocommit", False) is True

    def draw_soon(self, caller: Caller, row: Parameters, first: int, count: int, wait: float) -> int | None:
        before = first_of(caller.fetch("PRAGMA busy_timeout", {}))
        caller.fetch(f"PRAGMA busy_timeout = {ceil(1000 * wait)}", {})
        try:
            return self.draw(caller, row, first, count, None)
        finally:
            caller.fetch(f"PRAGMA busy_timeout = {before}", {})


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


class MySQLNumbers(NumberDialect):
    """MySQL has no RETURNING: the number is the LAST_INSERT_ID in the response to the statement."""

    draws = f"{INSERT} VALUES (:name, :scope, :period, {{first}}) {DUPLICATE} LAST_INSERT_ID(n + {{count}})"
    raises = f"{INSERT} VALUES (:name, :scope, :period, {{n}}) {DUPLICATE} GREATEST(n, {{n}})"
    voids = f"INSERT IGNORE {VOID}"
    reads = f"SELECT n FROM allocator_number WHERE {KEY} FOR UPDATE"
    holder = (
        "SELECT t.processlist_id, t.processlist_user, t.processlist_host, NULL FROM performance_schema.data_locks l "
        "JOIN performance_schema.threads t ON t.thread_id = l.thread_id WHERE l.object_schema = DATABASE() "
        "AND l.object_name = 'allocator_number' AND l.lock_status = 'GRANTED' AND t.processlist_id <> CONNECTION_ID() "
        "AND l.lock_data = CONCAT('''', :name, ''', ''', :scope, ''', ''', :period, '''') LIMIT 1"
    )

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        asked = getattr(connection, "get_autocommit", None)
        commits = asked() if callable(asked) else getattr(connection, "autocommit", False) is True
        return bool(commits) and not self.dialect.leaves_open(driver_connection)

    def lastrowid(self, result: Any) -> int:
        return int(result.lastrowid or 0)

    def draw(self, caller: Caller, row: Parameters, first: int, count: int, wait: float | None) -> int | None:
        with self.waiting(caller, wait) if wait is not None else nullcontext():
            if wait == 0:  # the setting counts in whole seconds
                caller.fetch(f"{self.reads} NOWAIT", row)
            answer = caller.run(drawing(self.draws, first, count), row)
        if answer.rowcount == 1:
            return first  # a new row
        # Where the table has triggers no number comes back; the row is locked by this transaction.
        return answer.lastrowid or first_of(caller.fetch(self.reads, row))

    def raise_to(self, caller: Caller, row: Parameters, n: int) -> int:
        caller.run(self.raises.format(n=n), row)
        return first_of(caller.fetch(self.reads, row)) or 0

    @contextmanager
    def waiting(self, caller: Caller, wait: float) -> Iterator[None]:
        seconds = max(1, ceil(wait))
        caller.run(f"SET @allocator_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = {seconds}", {})
        try:
            yield
        except BaseException:
            with suppress(SQLAlchemyError):  # the first error says why
                self.restore_timeout(caller)
            raise
        self.restore_timeout(caller)

    def restore_timeout(self, caller: Caller) -> None:
        caller.run("SET innodb_lock_wait_timeout = @allocator_wait", {})


class MariaDBNumbers(MySQLNumbers):
    draws = f"{INSERT} VALUES (:name, :scope, :period, {{first}}) {DUPLICATE} n + {{count}} RETURNING n"
    holder = ""

    def draw(self, caller: Caller, row: Parameters, first: int, count: int, wait: float | None) -> int | None:
        limit = "" if wait is None else f"SET STATEMENT innodb_lock_wait_timeout = {ceil(wait)} FOR "
        return first_of(caller.fetch(limit + drawing(self.draws, first, count), row))


KINDS: Mapping[str, type[NumberDialect]] = {
    "sqlite": SQLiteNumbers,
    "postgresql": PostgreSQLNumbers,
    "mysql": MySQLNumbers,
}


@cache
def number_dialect(dialect: Dialect, *, is_mariadb: bool) -> NumberDialect:
    return MariaDBNumbers(dialect) if is_mariadb else KINDS[dialect.name](dialect)
