"""Django's connection as the transaction in which numbers without gaps are drawn, and their tables beside its own.

Django is not imported: whoever gives its connection has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from allocator.database.address import dialect_named
from allocator.database.caller import Answer
from allocator.database.number_dialects import number_dialect
from allocator.database.tables import BESIDE
from allocator.errors import InvalidDatabase

PARAMETER = re.compile(r":(\w+)")

SQL_DIALECTS: Mapping[str, type[SQLDialect]] = {
    "sqlite": sqlite.dialect,
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
}
"""By the vendor of Django's connection."""


class DjangoCaller:
    """The `atomic` block of a connection of Django's. Raises `InvalidDatabase` where it is in none."""

    def __init__(self, connection: Any) -> None:
        if not connection.in_atomic_block:
            raise InvalidDatabase(
                "numbers are drawn inside of transaction.atomic(): outside of it Django commits each statement by "
                "itself, and a number would stay given where its row is not written"
            )
        self.connection = connection
        self.where = f"Django's database {connection.alias!r}"
        self.dialect = dialect_named(connection.vendor, self.where)
        self.numbers = number_dialect(self.dialect, is_mariadb=bool(getattr(connection, "mysql_is_mariadb", False)))

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        named = PARAMETER.sub(r"%(\1)s", statement) if parameters else statement
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(named, parameters or None)
                rows = cursor.fetchall() if cursor.description else ()
            except Exception as error:
                if error.__cause__ is None:  # Django's own, as of a block that has failed
                    raise
                raise DBAPIError(statement, None, error.__cause__) from error
            return Answer(rows, cursor.rowcount, self.numbers.lastrowid(cursor))


def make_tables(connection: Any) -> None:
    """Make the tables of numbers where Django keeps its rows, unless they are there."""
    dialect = SQL_DIALECTS.get(connection.vendor)
    if dialect is None:
        return
    with connection.cursor() as cursor:
        for table in BESIDE:
            cursor.execute(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect())))
