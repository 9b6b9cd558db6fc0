"""Draw numbers without gaps in a transaction of MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from allocator.database.verbs.gapless_number_rows import INSERT, KEY, VOID, NumberDialect, Parameters, drawing, first_of

if TYPE_CHECKING:
    from allocator.database.caller import Caller

DUPLICATE = "ON DUPLICATE KEY UPDATE n ="


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

    def rolls_back_at_timeout(self, caller: Caller) -> bool:
        with suppress(SQLAlchemyError):
            return first_of(caller.fetch("SELECT @@innodb_rollback_on_timeout", {})) != 0
        return True

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
