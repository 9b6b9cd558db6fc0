"""Take over a live column: fetch its status, start, finish, and go back.

Every step can be done again. On PostgreSQL a step is one transaction. MySQL and MariaDB commit each change of a table:
there the counter moves first, which only leaves a gap, and then tag and row are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, literal_column, select, text
from sqlalchemy.exc import SQLAlchemyError

from allocator.database import takeover_mysql, takeover_postgresql
from allocator.database.connection import Runner
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_held
from allocator.database.number_dialects import holder_in_words
from allocator.database.takeover_rows import Status, fetch, greatest_of_tag
from allocator.database.verbs import segments
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, Takeover, still_writes
from allocator.schemes.shared.argument_checks import split_column

if TYPE_CHECKING:
    from allocator.database.store import Database

FILE = (
    "a tag cannot take over a column of SQLite while writers use it; stop them for a moment and run: allocator tags "
    "create TAG --start-after-column TABLE.COLUMN"
)

NATIVE: Mapping[str, ModuleType] = {"postgresql": takeover_postgresql, "mysql": takeover_mysql}
"""By the name of the dialect: each has the same functions."""

LOCKED = (
    "an open transaction{holder} holds a lock on {table}; waited {waited:.0f} seconds, and changed nothing; end it "
    "({end}), or run this again later"
)


def native(dialect: Dialect) -> ModuleType:
    """The module with the statements of this database. Raises `InvalidSetting` on SQLite."""
    if dialect.embedded:
        raise InvalidSetting(FILE)
    return NATIVE[dialect.name]


def check_alone(database: Database) -> None:
    """Raise `InvalidSetting` if the database is one of several shards."""
    if (shard := database.fetch_shard()) and len(shard.members) > 1:
        raise InvalidSetting("this database is one of several shards; a takeover needs a database of its own")


def carry_out(database: Runner, verb: Callable[..., None], status: Status, *rest: object) -> None:
    """Run `start`, `finish` or `back`. The error of a lock timeout names the session that holds the lock."""
    try:
        database.run(verb, status, *rest)
    except DatabaseUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, SQLAlchemyError) and is_held(cause, database.dialect):
            raise database.run(locked, status.facts, database.timeout) from cause
        raise


def locked(connection: Connection, dialect: Dialect, facts: ColumnFacts, waited: float) -> DatabaseUnavailable:
    module, row = native(dialect), None
    with suppress(SQLAlchemyError):  # this user may not read which session it is
        asked = {"table": facts.quoted[0], "sequence": facts.sequence or None}
        row = connection.execute(text(module.HOLDER), asked).first()
    holder = f" ({holder_in_words(row)})" if row else ""
    end = module.END.format(row[0]) if row else module.FIND
    return DatabaseUnavailable(LOCKED.format(table=facts.table, holder=holder, waited=waited, end=end))


def fetch_status(connection: Connection, dialect: Dialect, words: str, tag: str = "") -> Status:
    """Fetch the column, its takeover and the tag. Raises `InvalidSetting` if there is no such column.

    words: table.column or schema.table.column. tag: by default that of the takeover.
    """
    module, (place, part) = native(dialect), split_column(words)
    schema, _, name = place.rpartition(".")
    facts: ColumnFacts = module.fetch_facts(connection, schema, name, part)
    found = fetch(connection, facts.place)
    if found and not facts.counter:
        facts = module.fetch_facts(connection, schema, name, part, found.counter)
    wanted = tag or (found.tag if found else "")
    now = int(connection.scalar(select(literal_column(dialect.clock))) or 0)
    # Before the tag is read: a writer may claim and insert in between.
    greatest = greatest_of_tag(connection, facts.place, found.ranges) if found else 0
    row = segments.fetch(connection, dialect, wanted) if wanted else None
    return Status(facts, found, row, greatest, now)


def start(connection: Connection, dialect: Dialect, status: Status, tag: str, ranges: Ranges) -> None:
    """Give the column its two ranges. Raises `InvalidSetting` where the counter has passed its own."""
    native(dialect).carry_out_start(connection, dialect, status, tag, ranges)


def finish(connection: Connection, dialect: Dialect, status: Status, found: Takeover, idle: float) -> None:
    """Leave the ids to the tag alone. Raises `InvalidSetting` where the counter has moved within `idle` seconds."""
    if why := still_writes(found, status.facts.given, status.now_ms, idle):
        raise InvalidSetting(why)
    native(dialect).carry_out_finish(connection, dialect, status, found, idle)


def back(connection: Connection, dialect: Dialect, status: Status, found: Takeover, ranges: Ranges) -> None:
    """Give the ids back to the counter; the tag keeps what its writers need meanwhile."""
    native(dialect).carry_out_back(connection, dialect, status, found, ranges)
