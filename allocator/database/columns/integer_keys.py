"""The integer keys of the host's own tables, by the catalogues, and the greatest value of each, by its index alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnClause, Connection, column, func, literal_column, select, table, text, union_all
from sqlalchemy.exc import DBAPIError

from allocator.database.address import Address
from allocator.database.columns.column_types import limit_in
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_forbidden
from allocator.database.schema.tables import VERSION_TABLE, metadata
from allocator.database.verbs.number_columns import reading
from allocator.rules.key_columns import KeyColumn
from allocator.rules.tag_column import Generator

OURS = frozenset({*metadata.tables, VERSION_TABLE})
AT_ONCE = 100
"""Tables that are read by one statement. SQLite allows 500."""
LOOK_BACK = 1000
"""Rows that are read at most to find one that a sequence with an increment will meet."""


class Found(NamedTuple):
    """A key by the catalogues.

    given: the last value of its sequence; ends, starts: the sequence's greatest and least one.
    may_read_counter: of what supplies the value of an INSERT without one; None if nothing does that counts.
    """

    schema: str
    table: str
    column: str
    type: str
    given: int | None = None
    ends: int | None = None
    may_read: bool = True
    may_read_counter: bool | None = None
    starts: int = 1


class KeyQueries(NamedTuple):
    """The queries for the rows `Found` and `Reference`, of a :schema or where there is none of all.

    references: empty where every integer has 64 bits, so that no foreign key is narrower. by_index: a statement before
    them, for a session that reads by index.
    """

    keys: str
    references: str = ""
    by_index: str = ""


class Reference(NamedTuple):
    """A foreign key of one column, and the key that it references."""

    schema: str
    table: str
    column: str
    type: str
    to_schema: str
    to_table: str
    to_column: str


def read_keys(address: Address, schema: str | None = None) -> list[KeyColumn]:
    """The integer keys of a schema: by default all of PostgreSQL's, and those of the database on MySQL and MariaDB.

    Raises what the database's errors mean.
    """
    dialect = address.dialect
    keys, references, by_index = dialect.tools().keys
    asked = {"schema": schema}
    with reading(address) as connection:
        prepare(connection, by_index)
        found = [one for row in connection.execute(text(keys), asked) if (one := Found(*row)).table not in OURS]
        refers = [Reference(*row) for row in connection.execute(text(references), asked)] if references else []
        stored = read_greatest(connection, dialect, found)
        keys_found = [key_of(connection, dialect, one, stored.get(n)) for n, one in enumerate(found)]
        return with_narrow(keys_found, found, dialect, refers)


def prepare(connection: Connection, words: str) -> None:
    """MariaDB needs no such setting, and reads the text between the stars as a comment."""
    try:
        if words:
            connection.exec_driver_sql(words)
    except DBAPIError:
        connection.rollback()


def key_of(connection: Connection, dialect: Dialect, found: Found, stored: int | None) -> KeyColumn:
    limit = limit_in(dialect, found.type)
    ends, shown = min(limit, found.ends or limit), f"{found.schema}.{found.table}"
    is_of_others = found.may_read_counter and ends < min(limit, stored or 0)
    known = [int(value) for value in (0 if is_of_others else stored, found.given) if value is not None]
    greatest = max(known) if known else None
    key = KeyColumn(shown, found.column, found.type, ends, greatest, by_sequence=ends < limit, starts=found.starts)
    if found.may_read_counter is None:
        return key
    if not found.may_read_counter:
        return key._replace(mend=None)
    return behind(connection, dialect, found, key, stored) if stored and stored > (found.given or 0) else key


def behind(connection: Connection, dialect: Dialect, found: Found, key: KeyColumn, stored: int) -> KeyColumn:
    """The key with the next value of its counter and the mend, if rows hold values that the counter will issue.

    Rows above its end belong to others. Without the last value, nothing can be behind: the key is full.
    """
    counter = counter_of(connection, dialect, found)
    if counter is None or stored < counter.next:
        return key
    if counter.step == 1 and stored < key.limit:  # it was read before the counter
        return key._replace(next=counter.next, mend=counter.skip.replace("{n}", str(stored + 1)))
    value: ColumnClause[int] = column(found.column)
    within = value.between(counter.next, key.limit - 1)
    source = table(found.table, value, schema=found.schema)
    rows = select(value).select_from(source).where(within).order_by(value.desc()).limit(LOOK_BACK).subquery()
    met = rows.c[found.column]
    last = connection.scalar(select(func.max(met)).where((met - counter.next) % counter.step == 0))
    counter = counter_of(connection, dialect, found)  # after the rows: other processes insert meanwhile
    if last is None or counter is None or last < counter.next:
        return key
    return key._replace(next=counter.next, mend=counter.skip.replace("{n}", str(last + counter.step)))


def counter_of(connection: Connection, dialect: Dialect, found: Found) -> Generator | None:
    known = dialect.tools().fetch_column(connection, found.schema, found.table, found.column)
    return next((one for one in known.generators if one.skip), None) if known else None


def read_greatest(connection: Connection, dialect: Dialect, found: Sequence[Found]) -> dict[int, int]:
    """The greatest values by the place in `found`, 0 for an empty table; none for one that this user may not read."""
    readable = [n for n, one in enumerate(found) if one.may_read]
    greatest: dict[int, int] = {}
    for start in range(0, len(readable), AT_ONCE):
        greatest |= greatest_of(connection, dialect, found, readable[start : start + AT_ONCE])
    return greatest


def greatest_of(
    connection: Connection, dialect: Dialect, found: Sequence[Found], part: Sequence[int]
) -> dict[int, int]:
    """Of several tables by one statement; one by one if some may not be read."""
    selects: list[Any] = []
    for n in part:
        source = table(found[n].table, column(found[n].column), schema=found[n].schema)
        selects.append(select(literal_column(str(n)), func.max(source.c[found[n].column])))
    try:
        return {int(n): int(value or 0) for n, value in connection.execute(union_all(*selects))}
    except DBAPIError as error:
        if not is_forbidden(error, dialect):
            raise
    alone = (greatest_of(connection, dialect, found, [n]) for n in part if len(part) > 1)
    return {n: value for one in alone for n, value in one.items()}


def with_narrow(
    keys: Sequence[KeyColumn], found: Sequence[Found], dialect: Dialect, references: Sequence[Reference]
) -> list[KeyColumn]:
    """Add the foreign keys that hold less than the key that they reference."""
    known = {(one.schema, one.table, one.column): key for one, key in zip(found, keys, strict=True)}
    narrow = []
    for one in references:
        key = known.get((one.to_schema, one.to_table, one.to_column))
        limit = limit_in(dialect, one.type)
        if key is not None and limit < limit_in(dialect, key.type):
            narrow.append(KeyColumn(f"{one.schema}.{one.table}", one.column, one.type, limit, key.greatest, key.name))
    return [*keys, *narrow]
