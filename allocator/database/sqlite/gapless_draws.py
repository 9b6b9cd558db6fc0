"""Draw numbers without gaps in a transaction of SQLite."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from allocator.database.verbs.gapless_number_rows import INSERT, RAISE, NumberDialect, Parameters, first_of

if TYPE_CHECKING:
    from allocator.database.caller import Caller


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
