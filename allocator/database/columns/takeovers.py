"""Take over a live column: fetch its status, start, finish, and go back; and the rows of `allocator_takeover`.

Every step can be done again. On PostgreSQL a step is one transaction. MySQL and MariaDB commit each change of a table:
there the counter moves first, which only leaves a gap, and then tag and row are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnClause, Connection, column, func, insert, literal_column, select, table, text, update
from sqlalchemy.exc import SQLAlchemyError

from allocator.database.connection import Runner
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_held
from allocator.database.schema.tables import takeover as rows_of_takeovers
from allocator.database.verbs import segments
from allocator.database.verbs.gapless_number_rows import holder_in_words
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.rules.column_limit import max_step_for
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, State, Takeover, still_writes, tag_refusal
from allocator.schemes.shared.argument_checks import split_column
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, Tag

if TYPE_CHECKING:
    from allocator.database.store import Database

KEPT = rows_of_takeovers.c

FILE = (
    "a tag cannot take over a column of SQLite while writers use it; stop them for a moment and run: allocator tags "
    "create TAG --start-after-column TABLE.COLUMN"
)

LOCKED = (
    "an open transaction{holder} holds a lock on {table}; waited {waited:.0f} seconds, and changed nothing; end it "
    "({end}), or run this again later"
)


class Status(NamedTuple):
    """What a takeover command decides on.

    greatest: the greatest row in the tag's range. now_ms: the database's clock.
    """

    facts: ColumnFacts
    takeover: Takeover | None
    tag: Tag | None
    greatest: int
    now_ms: int

    @property
    def known(self) -> Takeover:
        if self.takeover is None:
            raise InvalidSetting(f"no takeover of {self.facts.place} was started; run: allocator takeover start")
        return self.takeover


def native(dialect: Dialect) -> ModuleType:
    """The module with the statements of this database. Raises `InvalidSetting` on SQLite."""
    found = dialect.tools().takeover
    if found is None:
        raise InvalidSetting(FILE)
    return found


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


def fetch(connection: Connection, place: str) -> Takeover | None:
    """Fetch the takeover of a column; None if there was none."""
    row = connection.execute(select(rows_of_takeovers).where(KEPT.place == place)).first()
    if row is None:
        return None
    ranges = Ranges(row.native_first, row.native_last, row.tag_first, row.tag_last)
    times = (row.given, row.given_at, row.started_given, row.started_at)
    return Takeover(row.place, row.tag, row.state, ranges, row.counter, *times)


def parts_of(place: str) -> tuple[str, str, str]:
    """Schema, table and column."""
    schema, name, part = place.rsplit(".", 2)
    return schema, name, part


def key_of(place: str) -> ColumnClause[Any]:
    """The column, for a statement."""
    schema, name, part = parts_of(place)
    return table(name, column(part), schema=schema).c[part]


def greatest_of_tag(connection: Connection, place: str, ranges: Ranges) -> int:
    """The greatest row in the tag's range; 0 for none. Reads one row, at the end of the index."""
    key = key_of(place)
    return connection.scalar(select(func.max(key)).where(key.between(ranges.tag_first, ranges.tag_last))) or 0


def note(connection: Connection, dialect: Dialect, found: Takeover, given: int, now_ms: int) -> None:
    """Write down that the counter has moved, unless another command has done so."""
    changed = update(rows_of_takeovers).where(KEPT.place == found.place, KEPT.given == found.given)
    connection.execute(changed.values(given=given, given_at=now_ms))


def meanwhile(place: str) -> InvalidSetting:
    return InvalidSetting(f"the takeover of {place} was changed meanwhile; see: allocator takeover status")


def begin(connection: Connection, dialect: Dialect, status: Status, tag: str, ranges: Ranges, given: int) -> None:
    """Write the tag and the row of a takeover that starts. Raises `InvalidSetting` if it has changed meanwhile."""
    place_tag(connection, dialect, tag, ranges, status.takeover)
    values = {"tag": tag, "state": "started", **ranges._asdict(), "counter": status.facts.counter}
    values |= {"given": given, "given_at": status.now_ms, "started_given": given, "started_at": status.now_ms}
    if status.takeover:
        write(connection, status.takeover, values)
    elif fetch(connection, status.facts.place):
        raise meanwhile(status.facts.place)
    else:
        connection.execute(insert(rows_of_takeovers).values(place=status.facts.place, **values))


def place_tag(connection: Connection, dialect: Dialect, name: str, ranges: Ranges, mine: Takeover | None) -> None:
    """Limit the tag to its range; create it if it is missing. Raises `InvalidSetting`, which ends the transaction."""
    found = segments.fetch(connection, dialect, name)
    low = max(ranges.tag_first - 1, found.max_value if found else 0)
    step = found.step if found else DEFAULT_STEP
    max_step = max_step_for(max(1, ranges.tag_last - low), step, DEFAULT_MAX_STEP)
    if found is None:
        done = segments.create(connection, dialect, Tag(name, low, step, max_step, ranges.tag_last))
    else:
        changes = {"max_step": max_step, "id_limit": ranges.tag_last, "max_value": low}
        done = segments.change(connection, dialect, name, changes)
    now = segments.fetch(connection, dialect, name)  # locked and read again: it includes claims made since the plan
    if not done or now is None:
        raise InvalidSetting(f"tag {name!r} was changed meanwhile; see: allocator tags show {name}")
    if why := tag_refusal(now, mine):
        raise InvalidSetting(why)


def run_each(connection: Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def change(connection: Connection, found: Takeover, state: State, ranges: Ranges) -> None:
    write(connection, found, {"state": state, **ranges._asdict()})


def write(connection: Connection, found: Takeover, values: Mapping[str, object]) -> None:
    """Change the row. Raises `InvalidSetting` if another command has changed it meanwhile."""
    same = (KEPT.place == found.place, KEPT.tag == found.tag, KEPT.state == found.state)
    if connection.execute(update(rows_of_takeovers).where(*same).values(**values)).rowcount != 1:
        raise meanwhile(found.place)
