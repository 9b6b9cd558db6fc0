"""Columns of the application that hold ids: the greatest value, what their types can hold, and their own counters."""

from __future__ import annotations

import warnings
from typing import Any

from sqlalchemy import Connection, column, func, inspect, select, table
from sqlalchemy.types import NULLTYPE, TypeEngine

from allocator.database.dialect import Dialect
from allocator.database.driver_errors import MISSING, NO_FUNCTION, meaning
from allocator.database.verbs import segments
from allocator.errors import InvalidSetting
from allocator.schemes.column_limit import NoColumn, limit_of
from allocator.schemes.shared.argument_checks import MAX_ID, split_column, split_table
from allocator.schemes.tag import Tag
from allocator.schemes.tag_column import ColumnFacts, Counter, opened


def read(
    connection: Connection, dialect: Dialect, table_name: str, column_name: str, at_most: int | None = None
) -> tuple[object, str, int]:
    """Read the greatest value (None for an empty table), the type, and the greatest id that the type can hold.

    at_most: of greater values nothing is read.
    """
    schema, bare = split_table(table_name)
    source = table(bare, column(column_name), schema=schema or None)
    refused = InvalidSetting(f"the column {table_name}.{column_name} holds no whole numbers")
    missing = NoColumn(f"there is no column {f'{table_name}.{column_name}':.100}")
    query = select(func.max(source.c[column_name]))
    if at_most is not None:
        query = query.where(source.c[column_name] <= at_most)
    # There is no max() of booleans and some other types.
    with meaning(refused, NO_FUNCTION, dialect), meaning(missing, MISSING, dialect):
        greatest = connection.scalar(query)
    kinds = kinds_of(connection, bare, schema)
    try:
        kind = kinds.get(column_name.lower(), NULLTYPE).compile(dialect=connection.dialect)
    except Exception:  # no type, or a custom one that does not compile
        return greatest, "", MAX_ID
    return greatest, kind, limit_in(dialect, kind)


def kinds_of(connection: Connection, table_name: str, schema: str) -> dict[str, TypeEngine[Any]]:
    """The type of each column by its name in small letters; of a domain its base type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of unknown types of other columns
        found = inspect(connection).get_columns(table_name, schema or None)
    return {part["name"].lower(): getattr(part["type"], "data_type", part["type"]) for part in found}


def limit_in(dialect: Dialect, kind: str) -> int:
    """The greatest id that a type can hold, by its name."""
    return MAX_ID if dialect.embedded else limit_of(kind)  # any column of SQLite holds 64 bits


def read_beside(connection: Connection, dialect: Dialect, words: str, name: str) -> tuple[ColumnFacts, Tag | None]:
    """Read the column named by table.column or schema.table.column, up to the limit of the tag, and then the tag.

    The tag only rises. Read in this order, a claim and an INSERT in between raise no alarm. Raises `InvalidSetting`.
    """
    table, column = split_column(words)
    greatest, _, limit = read(connection, dialect, table, column)
    if type(greatest) is not int and greatest is not None:  # SQLite keeps any value in any column
        raise InvalidSetting(f"{words} holds {greatest!r:.80}, which is no whole number")
    facts = ColumnFacts(words, limit, greatest or 0, counter(connection, dialect, table, column))
    if tag := segments.fetch(connection, dialect, name):
        within, _, _ = read(connection, dialect, table, column, opened(tag, facts).limit)
        facts = facts._replace(greatest=within if isinstance(within, int) else 0)
    return facts, segments.fetch(connection, dialect, name)


def counter(connection: Connection, dialect: Dialect, table_name: str, column: str) -> Counter | None:
    """What numbers the rows by itself, if anything does."""
    schema, bare = split_table(table_name)
    parts = inspect(connection).get_columns(bare, schema or None)
    if any(part["name"].lower() == column.lower() and part.get("autoincrement") is True for part in parts):
        return dialect.counter(connection, schema, bare, column)
    return None
