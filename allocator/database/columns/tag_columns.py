"""A tag and the column that its ids are inserted into, read for a tag that is made beside a counter.

Facts come from the catalogue and an index alone: no table is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, column, func, select, table

from allocator.database.columns.column_types import limit_in
from allocator.database.dialect import Dialect
from allocator.database.verbs import segments
from allocator.errors import InvalidSetting
from allocator.rules.tag_column import ColumnFacts, Generator, opened
from allocator.schemes.shared.argument_checks import MAX_ID, in_quotes, split_column, split_table
from allocator.schemes.tag import Tag

if TYPE_CHECKING:
    from allocator.database.store import Database


class Found(NamedTuple):
    """A column by the catalogue. is_indexed: an index begins with it and covers all rows."""

    schema: str
    table: str
    column: str
    type: str
    is_whole: bool
    is_indexed: bool
    generators: tuple[Generator, ...] = ()


def read(connection: Connection, dialect: Dialect, words: str, name: str) -> tuple[ColumnFacts, Tag | None]:
    """Read the column named by table.column or schema.table.column, and then the tag.

    The tag only rises. Read in this order, a claim and an INSERT in between raise no alarm. Raises `InvalidSetting`.
    """
    named, part = split_column(words)
    schema, bare = split_table(named)
    catalogue = import_module(f"allocator.database.{dialect.name}.shared_columns")
    with by_index(connection, dialect):
        found: Found | None = catalogue.fetch_column(connection, schema, bare, part)
        if found is None:
            raise InvalidSetting(f"there is no table with a column {words:.255}")
        place = ".".join(map(in_quotes, found[:3]))
        if not found.is_whole:
            raise InvalidSetting(f"{place} is {found.type}, and holds no whole numbers")
        if not found.is_indexed:
            raise InvalidSetting(
                f"no index begins with {place}, so only a scan of the table could tell its greatest value; make an "
                "index first"
            )
        facts = ColumnFacts(place, found.type, limit_in(dialect, found.type), generators=found.generators)
        tag = segments.fetch(connection, dialect, name)
        key = table(found.table, column(found.column), schema=found.schema).c[found.column]
        within = key <= (opened(tag, facts).limit if tag else MAX_ID)
        greatest = connection.scalar(select(func.max(key)).where(within)) or 0
        if type(greatest) is not int:  # SQLite keeps any value in any column
            raise InvalidSetting(f"{place} holds {greatest!r:.80}, which is no whole number")
        return facts._replace(greatest=greatest), segments.fetch(connection, dialect, name)


def read_alone(database: Database, words: str, name: str) -> tuple[ColumnFacts, Tag | None]:
    """As `read`. Raises `InvalidSetting` for one of several shards too."""
    if database.has_siblings():
        raise InvalidSetting(
            f"a tag of several shards cannot be compared with {words:.255}: the column holds ids of all of them, and "
            "each shard knows only its own"
        )
    return database.run(read, words, name)


@contextmanager
def by_index(connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Read by index: PostgreSQL would scan a table that its statistics call small."""
    if not dialect.index_only:
        yield
        return
    with dialect.transaction(connection):
        connection.exec_driver_sql(dialect.index_only)
        yield
