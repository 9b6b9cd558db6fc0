"""What differs between the databases where a number is drawn in the caller's transaction.

One statement raises the row of a name, scope and period, or makes it, and says what it came to. The row stays locked
until the caller's transaction ends. How long a statement may wait for that is a setting of the session or
transaction, which is the caller's: it is put back after the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.dialect import Dialect

if TYPE_CHECKING:
    from allocator.database.caller import Answer, Caller

KEY = "name = :name AND scope = :scope AND period = :period"
INSERT = "INSERT INTO allocator_number (name, scope, period, n)"
RAISE = (
    "ON CONFLICT (name, scope, period) DO UPDATE SET n = allocator_number.n + :count WHERE allocator_number.n <= :most"
)
RAISE_TO = (
    "ON CONFLICT (name, scope, period) DO UPDATE "
    "SET n = CASE WHEN allocator_number.n < :n THEN :n ELSE allocator_number.n END"
)
DUPLICATE = "ON DUPLICATE KEY UPDATE n ="
VOID = (
    "INTO allocator_number_void (name, scope, period, n, written, reason, voided_at) "
    "VALUES (:name, :scope, :period, :n, :written, :reason, CURRENT_TIMESTAMP)"
)

Parameters = Mapping[str, object]


class NumberDialect:
    """SQLite and PostgreSQL say the same; the verbs are in `verbs/numbers.py`."""

    draws = f"{INSERT} VALUES (:name, :scope, :period, :first) {RAISE} RETURNING n"
    """Its first word is INSERT: Python's sqlite3 begins the transaction of a row then, and not for WITH."""
    raises = f"{INSERT} VALUES (:name, :scope, :period, :n) {RAISE_TO} RETURNING n"
    voids = f"INSERT {VOID} ON CONFLICT DO NOTHING"
    holder = ""
    """Who holds the row: a query for one row of what is told of a session."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        """Whether the driver commits each statement, and has not been told to begin a transaction."""
        return getattr(connection, "autocommit", False) is True and not self.dialect.leaves_open(driver_connection)

    def lastrowid(self, result: Any) -> int:
        return 0

    def draw(self, caller: Caller, parameters: Parameters, wait: float | None) -> int | None:
        """The number that the row came to; None where fewer are left."""
        with self.waiting(caller, wait):
            return first_of(caller.run(self.draws, parameters))

    def raise_to(self, caller: Caller, parameters: Parameters) -> int:
        """At least :n: the number that the row came to."""
        found = first_of(caller.run(self.raises, parameters))
        assert found is not None
        return found

    @contextmanager
    def waiting(self, caller: Caller, wait: float | None) -> Iterator[None]:
        """Let a statement wait so long for a lock; None for as long as the database has it wait."""
        yield

    def fetch_holder(self, caller: Caller, parameters: Parameters) -> str:
        """Who holds the row of these parameters; empty where the database does not tell."""
        rows = caller.run(self.holder, parameters).rows if self.holder else ()
        return (
            ", ".join(f"{field} {value}" for field, value in zip(HOLDER, rows[0], strict=True) if value) if rows else ""
        )

    def of_row(self, parameters: Parameters) -> Parameters:
        return {name: parameters[name] for name in ("name", "scope", "period")}


HOLDER = ("session", "of user", "from", "application")
"""What a holder's query returns, in words."""


def first_of(answer: Answer) -> int | None:
    return int(answer.rows[0][0]) if answer.rows else None


class SQLiteNumbers(NumberDialect):
    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        if getattr(driver_connection, "in_transaction", False):
            return False
        return driver_connection.isolation_level is None or getattr(driver_connection, "autocommit", False) is True

    @contextmanager
    def waiting(self, caller: Caller, wait: float | None) -> Iterator[None]:
        if wait is None:
            yield
            return
        before = first_of(caller.run("PRAGMA busy_timeout", {}))
        caller.run(f"PRAGMA busy_timeout = {ceil(1000 * wait)}", {})
        try:
            yield
        finally:
            caller.run(f"PRAGMA busy_timeout = {before}", {})


class PostgreSQLNumbers(NumberDialect):
    draws_soon = (
        "WITH waiting AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, "
        "set_config('lock_timeout', :wait, true) AS now) "
        f"{INSERT} SELECT CAST(:name AS VARCHAR), CAST(:scope AS VARCHAR), CAST(:period AS VARCHAR), :first "
        f"FROM waiting WHERE now IS NOT NULL {RAISE} "
        "RETURNING n, set_config('lock_timeout', (SELECT before FROM waiting), true)"
    )
    """The setting is the transaction's, and is put back by the statement itself, or by the savepoint before it."""
    holder = (
        "SELECT a.pid, a.usename, a.client_addr, a.application_name FROM pg_locks l "
        "JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = "
        f"(SELECT xmax FROM allocator_number WHERE {KEY})"
    )

    def draw(self, caller: Caller, parameters: Parameters, wait: float | None) -> int | None:
        if wait is None:
            return super().draw(caller, parameters, wait)
        milliseconds = {"wait": f"{max(1, ceil(1000 * wait))}ms"}  # 0 would be for ever
        with savepoint(caller) as undo:
            drawn = first_of(caller.run(self.draws_soon, {**parameters, **milliseconds}))
            if drawn is None:
                undo()
            return drawn

    def fetch_holder(self, caller: Caller, parameters: Parameters) -> str:
        with savepoint(caller):
            return super().fetch_holder(caller, parameters)


@contextmanager
def savepoint(caller: Caller) -> Iterator[Callable[[], Any]]:
    """An error in here leaves the caller's transaction alive, which would be lost on PostgreSQL."""

    def undo() -> None:
        caller.run("ROLLBACK TO SAVEPOINT allocator_number", {})

    caller.run("SAVEPOINT allocator_number", {})
    try:
        yield undo
    except SQLAlchemyError:
        with suppress(SQLAlchemyError):  # the connection may be lost
            undo()
            caller.run("RELEASE SAVEPOINT allocator_number", {})
        raise
    caller.run("RELEASE SAVEPOINT allocator_number", {})


class MySQLNumbers(NumberDialect):
    """MySQL has no RETURNING: the number comes as LAST_INSERT_ID, in the answer to the statement itself."""

    draws = f"{INSERT} VALUES (:name, :scope, :period, :first) {DUPLICATE} LAST_INSERT_ID(n + :count)"
    raises = f"{INSERT} VALUES (:name, :scope, :period, :n) {DUPLICATE} GREATEST(n, :n)"
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

    def draw(self, caller: Caller, parameters: Parameters, wait: float | None) -> int | None:
        with self.waiting(caller, wait):
            if wait == 0:  # the setting counts in whole seconds
                caller.run(f"{self.reads} NOWAIT", self.of_row(parameters))
            answer = caller.run(self.draws, parameters)
        if answer.rowcount == 1:
            return int(str(parameters["first"]))  # a new row
        # Where the table has triggers no number comes back; the row is locked by this transaction.
        return answer.lastrowid or first_of(caller.run(self.reads, self.of_row(parameters)))

    def raise_to(self, caller: Caller, parameters: Parameters) -> int:
        caller.run(self.raises, parameters)
        return first_of(caller.run(self.reads, self.of_row(parameters))) or 0

    @contextmanager
    def waiting(self, caller: Caller, wait: float | None) -> Iterator[None]:
        if wait is None:
            yield
            return
        seconds = max(1, ceil(wait))
        caller.run(f"SET @allocator_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = {seconds}", {})
        try:
            yield
        finally:
            with suppress(SQLAlchemyError):  # where the connection is lost, so is the setting
                caller.run("SET innodb_lock_wait_timeout = @allocator_wait", {})


class MariaDBNumbers(MySQLNumbers):
    draws = f"{INSERT} VALUES (:name, :scope, :period, :first) {DUPLICATE} n + :count RETURNING n"
    holder = ""

    def draw(self, caller: Caller, parameters: Parameters, wait: float | None) -> int | None:
        limit = "" if wait is None else f"SET STATEMENT innodb_lock_wait_timeout = {ceil(wait)} FOR "
        return first_of(caller.run(limit + self.draws, parameters))


KINDS: Mapping[str, type[NumberDialect]] = {
    "sqlite": SQLiteNumbers,
    "postgresql": PostgreSQLNumbers,
    "mysql": MySQLNumbers,
}


def number_dialect(dialect: Dialect, *, is_mariadb: bool) -> NumberDialect:
    return MariaDBNumbers(dialect) if is_mariadb else KINDS[dialect.name](dialect)
