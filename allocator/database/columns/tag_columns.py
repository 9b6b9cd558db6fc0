"""A column and the tag that shares it with the column's own counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect

from allocator.database.columns import column_types
from allocator.database.dialect import Dialect
from allocator.database.verbs import segments
from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import split_column, split_table
from allocator.schemes.tag import Tag
from allocator.schemes.tag_column import ColumnFacts, Counter, opened

if TYPE_CHECKING:
    from allocator.database.store import Database


def read(connection: Connection, dialect: Dialect, words: str, name: str) -> tuple[ColumnFacts, Tag | None]:
    """Read the column named by table.column or schema.table.column, up to the limit of the tag, and then the tag.

    The tag only rises. Read in this order, a claim and an INSERT in between raise no alarm. Raises `InvalidSetting`.
    """
    table, column = split_column(words)
    greatest, _, limit = column_types.read(connection, dialect, table, column)
    if type(greatest) is not int and greatest is not None:  # SQLite keeps any value in any column
        raise InvalidSetting(f"{words} holds {greatest!r:.80}, which is no whole number")
    facts = ColumnFacts(words, limit, greatest or 0, counter(connection, dialect, table, column))
    if tag := segments.fetch(connection, dialect, name):
        within, _, _ = column_types.read(connection, dialect, table, column, opened(tag, facts).limit)
        facts = facts._replace(greatest=within if isinstance(within, int) else 0)
    return facts, segments.fetch(connection, dialect, name)


def counter(connection: Connection, dialect: Dialect, table_name: str, column: str) -> Counter | None:
    """What numbers the rows by itself, if anything does."""
    schema, bare = split_table(table_name)
    parts = inspect(connection).get_columns(bare, schema or None)
    if any(part["name"].lower() == column.lower() and part.get("autoincrement") is True for part in parts):
        return dialect.counter(connection, schema, bare, column)
    return None


def read_alone(database: Database, words: str, name: str) -> tuple[ColumnFacts, Tag | None]:
    """As `read`. Raises `InvalidSetting` in a fleet too."""
    if database.read_row().fleet:
        raise InvalidSetting(
            f"a tag of a fleet cannot be compared with {words:.255}: the column holds ids of all its databases, and "
            "each knows only its own"
        )
    return database.run(read, words, name)
