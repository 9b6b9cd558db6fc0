"""The rows of `allocator_takeover`, and the tag of a takeover: read, and written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnClause, Connection, column, func, insert, select, table, update

from allocator.database.dialect import Dialect
from allocator.database.tables import takeover as rows_of_takeovers
from allocator.database.verbs import segments
from allocator.errors import InvalidSetting
from allocator.rules.column_limit import max_step_for
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, State, Takeover, tag_refusal
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, Tag

KEPT = rows_of_takeovers.c


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
