"""Rows of which some were changed by hand: one that cannot be read hides none of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Select, Table, func, select

from allocator.errors import SchemaDamaged

T = TypeVar("T")

log = logging.getLogger("allocator")

told: WeakKeyDictionary[Engine, set[str]] = WeakKeyDictionary()
"""What was logged of a database: a service reads the same rows every few seconds."""


class Reader(Generic[T]):
    """Reads the rows of one table.

    convert: makes an object of a row; whatever it raises means that the row is damaged.
    damaged: makes the error, from the first column of the key and the reason.
    """

    def __init__(self, table: Table, convert: Callable[[Any], T], damaged: Callable[[Any, str], SchemaDamaged]) -> None:
        self._columns = list(table.c)
        self._key = next(iter(table.primary_key))
        self._convert, self._damaged = convert, damaged

    def one(self, row: Any) -> T:
        """Read a row. Raises `SchemaDamaged`, also where a value is of another type than its column."""
        try:
            for column in self._columns:
                value = getattr(row, column.name)
                if type(value) is not column.type.python_type and not (value is None and column.nullable):
                    raise TypeError(f"{column.name} is {value!a:.80}")
            return self._convert(row)
        except Exception as error:
            raise self._damaged(getattr(row, self._key.name), str(error)) from error

    def all(self, connection: Connection, statement: Select[Any], **given: Any) -> list[T]:
        """Fetch the rows of an ordered statement, without those that cannot be read."""
        return [one for one in self.each(connection, statement, **given) if one is not None]

    def each(self, connection: Connection, statement: Select[Any], first: int = 0, **given: Any) -> list[T | None]:
        """As `all`, with None for a row that cannot be read; from the row `first` on. Logs each of these once."""
        asked = statement.offset(first) if first else statement
        found = connection.execute(asked, given)
        try:
            rows = found.all()
        except Exception:
            count = connection.scalar(select(func.count()).select_from(asked.subquery()), given)
            return self._part(connection, statement, given, first, count or 0)
        return [self._one_of(connection, row) for row in rows]

    def _part(
        self, connection: Connection, statement: Select[Any], given: Mapping[str, Any], first: int, count: int
    ) -> list[T | None]:
        """Of an answer with a value that it cannot convert, as a date `infinity`, a driver gives no row: halve it."""
        found = connection.execute(statement.offset(first).limit(count), given)
        try:
            return [self._one_of(connection, row) for row in found.all()]
        except Exception as error:
            if count > 1:
                half = count // 2
                parts = (first, half), (first + half, count - half)
                return [one for part in parts for one in self._part(connection, statement, given, *part)]
            key = connection.execute(statement.with_only_columns(self._key).offset(first).limit(1), given)
            reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
        try:
            value = key.scalar()
        except Exception:
            value = "?"
        tell(connection, self._damaged(value, reason))
        return [None]

    def _one_of(self, connection: Connection, row: Any) -> T | None:
        try:
            return self.one(row)
        except SchemaDamaged as error:
            tell(connection, error)
            return None


def tell(connection: Connection, error: SchemaDamaged) -> None:
    known = told.setdefault(connection.engine, set())
    if str(error) not in known:
        known.add(str(error))
        log.error("%s", error)
