"""Django's connection as the transaction in which numbers without gaps are drawn, and the tables beside its own.

This module does not import Django: a caller who has one of its connections has imported it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from time import monotonic
from typing import Any
from uuid import UUID

from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from allocator.database.address import dialect_named
from allocator.database.caller import STILL_OPEN
from allocator.database.driver_errors import translate, upgrade_of
from allocator.database.tables import BESIDE
from allocator.database.verbs.gapless_number_rows import number_dialect
from allocator.errors import InvalidDatabase

PARAMETER = re.compile(r":(\w+)")

SQL_DIALECTS: Mapping[str, type[SQLDialect]] = {
    "sqlite": sqlite.dialect,
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
}


class DjangoCaller:
    """The `atomic` block of a connection of Django's. Raises `InvalidDatabase` where it is in none."""

    __slots__ = ("connection", "numbers")

    def __init__(self, connection: Any) -> None:
        if not connection.in_atomic_block:
            raise InvalidDatabase(
                "draw numbers inside transaction.atomic(); otherwise Django commits each statement by itself, and a "
                "number stays used even if its row is never written"
            )
        if connection.needs_rollback:
            raise InvalidDatabase("no number can be drawn here: this transaction has failed before; roll it back")
        self.connection = connection
        vendor = connection.vendor
        dialect = dialect_named(vendor, "Django's connection")
        self.numbers = number_dialect(dialect, is_mariadb=vendor == "mysql" and connection.mysql_is_mariadb)

    @property
    def where(self) -> str:
        return f"Django's database {self.connection.alias!r}"

    def run(self, statement: str, parameters: Mapping[str, object]) -> Any:
        return self._execute(as_django_has_it(statement), parameters)

    def select(self, statement: Any) -> Sequence[Sequence[Any]]:
        kinds = [kind_of(getattr(one, "info", {}).get("field")) for one in statement.selected_columns]
        return [list(map(self._read, kinds, row)) for row in self._execute(*self._compiled(statement)).fetchall()]

    def _read(self, kind: str, value: Any) -> Any:
        """As Django reads it, where its driver returns a UUID as text, or a moment without its time zone."""
        if kind == "UUIDField" and isinstance(value, str):
            return UUID(value)
        is_bare = kind == "DateTimeField" and isinstance(value, datetime) and value.tzinfo is None
        return value.replace(tzinfo=self.connection.timezone) if is_bare else value

    def update(self, statement: Any) -> int:
        return int(self._execute(*self._compiled(statement)).rowcount)

    def refuse_more(self) -> None:
        self.connection.set_rollback(True)

    def _compiled(self, statement: Any) -> tuple[str, Mapping[str, object]]:
        make: Any = SQL_DIALECTS[self.connection.vendor]
        compiled = statement.compile(dialect=make(paramstyle="pyformat"), compile_kwargs={"render_postcompile": True})
        uuids = {} if self.connection.features.has_native_uuid_field else compiled.params
        digits = {name: one.hex for name, one in uuids.items() if isinstance(one, UUID)}
        return str(compiled), {**compiled.params, **digits}

    def _execute(self, statement: str, parameters: Mapping[str, object]) -> Any:
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement, parameters or None)
        except Exception as error:
            if error.__cause__ is None:  # Django's own, as of a block that has failed
                raise
            raise DBAPIError(statement, None, error.__cause__) from error
        return cursor


@contextmanager
def own_atomic(connection: Any) -> Iterator[DjangoCaller]:
    """A transaction of its own; inside of another one it is refused, unless that is of a test case."""
    began, database, transaction = monotonic(), import_module("django.db"), import_module("django.db.transaction")
    try:
        with ExitStack() as stack:
            if not (connection.in_atomic_block or connection.get_autocommit()):
                raise InvalidDatabase(f"{STILL_OPEN}; this connection is not in autocommit mode")
            try:
                stack.enter_context(transaction.atomic(using=connection.alias, durable=True))
            except RuntimeError as error:
                raise InvalidDatabase(f"{STILL_OPEN}; in an atomic block, call it by transaction.on_commit") from error
            yield DjangoCaller(connection)
    except (DBAPIError, database.Error) as error:
        if error.__cause__ is None:
            raise
        found = error if isinstance(error, DBAPIError) else DBAPIError(None, None, error.__cause__)
        dialect = dialect_named(connection.vendor, "Django's connection")
        where = f"Django's database {connection.alias!r}"
        raise translate(found, dialect, where, monotonic() - began, upgrade_of(where)) from error


def kind_of(field: Any) -> str:
    """What a field holds, or the one to which a foreign key points: known when all models are loaded."""
    while hasattr(field, "target_field"):
        field = field.target_field
    return field.get_internal_type() if field else ""


@lru_cache
def as_django_has_it(statement: str) -> str:
    """The parameters as `%(name)s`."""
    return PARAMETER.sub(r"%(\1)s", statement)


def make_tables(connection: Any) -> None:
    """Make the tables of numbers where Django keeps its rows, unless Django sees them.

    On PostgreSQL `IF NOT EXISTS` asks the first schema of the search_path alone, and a table there would hide the one
    in use. django-tenants shows a tenant its own schema, so a tenant still gets tables of its own.
    """
    if dialect := SQL_DIALECTS.get(connection.vendor):
        seen = connection.introspection.table_names()
        missing = (table for table in BESIDE if table.name not in seen)
        with connection.cursor() as cursor:
            for table in missing:
                cursor.execute(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect())))
