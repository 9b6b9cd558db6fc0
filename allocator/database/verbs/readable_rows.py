"""Rows of which some were changed by hand: one that cannot be read hides none of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Connection, DateTime, Engine, Table, type_coerce
from sqlalchemy.types import NullType

from allocator.errors import SchemaDamaged

T = TypeVar("T")

log = logging.getLogger("allocator")

told: WeakKeyDictionary[Engine, set[str]] = WeakKeyDictionary()
"""What was logged of a database: a service reads the same rows every few seconds."""


def readable(connection: Connection, rows: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """Read the rows, and skip those for which `read` raises `SchemaDamaged`; each such error is logged once."""
    found = []
    for row in rows:
        try:
            found.append(read(row))
        except SchemaDamaged as error:
            known = told.setdefault(connection.engine, set())
            if str(error) not in known:
                known.add(str(error))
                log.error("%s", error)
    return found


def unparsed(table: Table) -> list[ColumnElement[Any]]:
    """The columns with times as the driver returns them: SQLAlchemy would parse them, and fail for all rows at once."""
    return [
        type_coerce(part, NullType()).label(part.name) if isinstance(part.type, DateTime) else part for part in table.c
    ]


def moment_of(value: object) -> datetime:
    """The time in UTC. Raises `ValueError` or `TypeError` where it is none."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        raise TypeError(f"a time is {value!a:.40}")
    return found.replace(tzinfo=UTC)
