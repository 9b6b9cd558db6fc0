"""Draw numbers without gaps in a transaction of MySQL or MariaDB."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from allocator.database.driver_errors import is_of_a_check
from allocator.database.verbs.gapless_number_rows import INSERT, KEY, VOID, NumberDialect, Parameters, drawing, first_of

if TYPE_CHECKING:
    from allocator.database.caller import Caller

DUPLICATE = "ON DUPLICATE KEY UPDATE n ="
VALUES = f"{INSERT} VALUES (:name, :scope, :period, :rule, {{first}}) "
SAME = f"{DUPLICATE} IF(rule IN ('', :rule), {{raised}}, 0), rule = :rule"
"""MySQL knows no condition here: the CHECK of the table refuses the 0."""


class MySQLNumbers(NumberDialect):
    """MySQL has no RETURNING: the number is the LAST_INSERT_ID in the response to the statement."""

    draws = VALUES + SAME.format(raised="LAST_INSERT_ID(n + {count})")
    raises = f"{INSERT} VALUES (:name, :scope, :period, '', {{n}}) {DUPLICATE} GREATEST(n, {{n}})"
    voids = f"INSERT IGNORE {VOID}"
    reads = f"SELECT n FROM allocator_number WHERE {KEY} FOR UPDATE"
    by_key = "FORCE INDEX (PRIMARY)"
    cuts_down = True

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        asked = getattr(connection, "get_autocommit", None)
        commits = asked() if callable(asked) else getattr(connection, "autocommit", False) is True
        return bool(commits) and not self.dialect.leaves_open(driver_connection)

    def lastrowid(self, result: Any) -> int:
        return int(result.lastrowid or 0)

    def draw(self, caller: Caller, row: Parameters, first: int, count: int) -> int | None:
        try:
            return self.drawn(caller, row, first, count)
        except DBAPIError as error:
            if is_of_a_check(error, self.dialect):
                return None
            raise

    def drawn(self, caller: Caller, row: Parameters, first: int, count: int) -> int | None:
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


class MariaDBNumbers(MySQLNumbers):
    draws = f"{VALUES}{SAME.format(raised='n + {count}')} RETURNING n"

    def drawn(self, caller: Caller, row: Parameters, first: int, count: int) -> int | None:
        return first_of(caller.fetch(drawing(self.draws, first, count), row))
