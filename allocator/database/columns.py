"""Columns of the application that hold ids: the greatest value, what their types can hold, and their own counters."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnClause, Connection, column, func, inspect, select, table
from sqlalchemy.types import NULLTYPE

from allocator.database.dialect import Dialect
from allocator.database.driver_errors import MISSING, NO_FUNCTION, meaning
from allocator.database.verbs import segments, shard_row
from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import MAX_ID, quoted, split_column, split_table
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag
from allocator.schemes.tag_column import Column, NoColumn, end_of, limit_of


def read(connection: Connection, dialect: Dialect, name: str, at_most: int = MAX_ID) -> Column:
    """Read a column that is named table.column or schema.table.column. Raises `InvalidSetting`.

    at_most: of greater values nothing is read.
    """
    table_name, column_name = split_column(name)
    schema, bare = split_table(table_name)
    values: ColumnClause[Any] = column(column_name)
    refused = InvalidSetting(f"the column {name:.255} holds no whole numbers")
    missing = NoColumn(f"there is no column {name:.100}")
    query = select(func.max(values)).select_from(table(bare, values, schema=schema or None))
    if at_most < MAX_ID:
        query = query.where(values <= at_most)
    # There is no max() of booleans and some other types.
    with meaning(refused, NO_FUNCTION, dialect), meaning(missing, MISSING, dialect):
        greatest = whole(name, connection.scalar(query))
    found = described(connection, table_name).get(column_name.lower(), {}).get("type", NULLTYPE)
    try:
        kind = getattr(found, "data_type", found).compile(dialect=connection.dialect)  # of a domain its base type
    except Exception:  # no type, or a custom one that does not compile
        kind = ""
    # Any column of SQLite holds 64 bits.
    return Column(MAX_ID if dialect.embedded else limit_of(kind), f"{name} ({kind})", greatest)


def whole(name: str, value: object) -> int:
    """The greatest value of a column; 0 if it is empty or below. SQLite keeps any value in any column."""
    if value is None:
        return 0
    if type(value) is not int and not (isinstance(value, Decimal) and value.is_finite() and value == int(value)):
        raise InvalidSetting(f"the greatest value of {name:.255} is no whole number: {quoted(value)}")
    return max(0, int(value))


def described(connection: Connection, table_name: str) -> dict[str, Any]:
    """The columns of a table, as SQLAlchemy finds them, by their names in small letters."""
    schema, bare = split_table(table_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of unknown types of other columns
        return {part["name"].lower(): part for part in inspect(connection).get_columns(bare, schema or None)}


def read_shared(connection: Connection, dialect: Dialect, words: str, name: str) -> tuple[Column, Tag | None]:
    """Read a column up to the limit of the tag that shares it, and then the tag. Raises `InvalidSetting`.

    The tag only rises. Read in this order, a claim and an INSERT in between raise no alarm.
    """
    if (shard_row.fetch(connection, dialect) or Shard()).fleet:
        raise InvalidSetting(
            f"a tag of a fleet cannot be compared with {words:.255}: the column holds ids of all its databases, and "
            "each knows only its own"
        )
    table_name, column_name = split_column(words)
    found = read(connection, dialect, words)
    if described(connection, table_name).get(column_name.lower(), {}).get("autoincrement") is True:
        found = found._replace(counter=dialect.counter(connection, *split_table(table_name), column_name))
    if tag := segments.fetch(connection, dialect, name):
        found = found._replace(greatest=read(connection, dialect, words, end_of(tag, found)).greatest)
    return found, segments.fetch(connection, dialect, name)
