"""Draw numbers without gaps in a transaction of SQLite."""

from __future__ import annotations

from typing import Any

from allocator.database.verbs.gapless_number_rows import INSERT, RAISE, NumberDialect


class SQLiteNumbers(NumberDialect):
    draws = f"{INSERT} VALUES (:name, :scope, :period, :rule, {{first}}) {RAISE} AND n <= {{most}} RETURNING n"
    locks_all = "UPDATE allocator_number SET n = n WHERE n IS NULL"
    settles = ""  # the draw locks the file, and what is read after it is the newest

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        if getattr(driver_connection, "in_transaction", False):
            return False
        return driver_connection.isolation_level is None or getattr(driver_connection, "autocommit", False) is True
