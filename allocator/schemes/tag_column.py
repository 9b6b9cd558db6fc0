"""The column of a tag's ids: what its type can hold, and how the tag shares it with the column's own counter.

On PostgreSQL the counter has the lower range, and MAXVALUE ends it. On MySQL and MariaDB AUTO_INCREMENT follows the
greatest id that anybody inserts, so there the tag has the lower range, and the counter continues above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP, check_whole
from allocator.schemes.shared.findings import DANGER, OUTAGE, Finding
from allocator.schemes.tag import Tag

BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "INTEGER": 32}
TYPE = r"(\w+)(?:\((\d+)(?:, ?(\d+))?\))?( UNSIGNED)?"

LEAST_CLAIMS = 2048
"""The default `max_step` leaves a tag with a low limit at least this many claims, unless its step is larger."""

LEAVE = 1_000_000
"""Ids of the lower range. The counter may use up as many before it is held."""


class Counter(NamedTuple):
    """What supplies the id of an INSERT without one: AUTO_INCREMENT, or a sequence.

    next, ends: the range of ids that it can still issue.
    hold: the statement that ends its range at {n}, or where not `is_below` lets it continue at {n}; "" for none.
    """

    name: str
    next: int = 1
    ends: int = MAX_ID
    hold: str = ""
    is_below: bool = False


NO_COUNTER = Counter("", ends=0, is_below=True)


class Column(NamedTuple):
    """The column that receives the ids.

    limit: the greatest id it can hold.
    name: table, column and type, as `orders.id (INTEGER)`.
    greatest: the greatest value in it, of a tag that shares it up to the end of the tag.
    counter: what numbers its rows beside a tag.
    """

    limit: int = MAX_ID
    name: str = ""
    greatest: int = 0
    counter: Counter = NO_COUNTER


class NoColumn(InvalidSetting):
    """There is no such column in the database."""


def limit_of(kind: str) -> int:
    """The greatest id that a column of this SQL type can hold; `MAX_ID` for an unknown type."""
    match = re.match(TYPE, kind.upper())
    if match is None:
        return MAX_ID
    word, digits, scale, unsigned = match.groups()
    if word in ("NUMERIC", "DECIMAL") and digits and scale in (None, "0"):
        return min(MAX_ID, int("9" * int(digits)))
    return (1 << BITS[word] - (not unsigned)) - 1 if word in BITS else MAX_ID


def max_step_for(limit: int, step: int, usual: int) -> int:
    """The default `max_step` of a tag: `usual`, or less where one claim would take too much of a small range."""
    check_whole("step", step, 1, MAX_STEP)
    return min(usual, max(step, check_whole("limit", limit, 1, MAX_ID) // LEAST_CLAIMS))


# -- beside the column's own counter


def planned_start(column: Column) -> int:
    """The number that the tag starts above. Raises `InvalidSetting` for lack of a counter that can be held, or of room.

    Where the lower range is the tag's, the counter has as many ids below it until it is held.
    """
    counter = column.counter
    if not counter.hold:
        raise InvalidSetting(
            f"{column.name} has no counter that can be held apart from a tag; stop the writers for a moment, and use "
            "--start-after-column instead"
        )
    reached = max(column.greatest, counter.next - 1)  # rows with ids of the counter may have been deleted
    start = reached + LEAVE
    if start > column.limit - (LEAVE if counter.is_below else 2 * LEAVE):
        raise InvalidSetting(
            f"{column.name} ends at {column.limit:,}, and {max(0, column.limit - reached):,} values are left: too few "
            f"for two ranges of {LEAVE:,}; widen the column first"
        )
    return start


def end_of(tag: Tag, column: Column) -> int:
    """The greatest id of the tag; of one that waits, that which it gets."""
    if not tag.waits_beside_column:
        return tag.limit
    return column.limit if column.counter.is_below else tag.skipped + LEAVE


def is_late(column: Column, tag: Tag) -> bool:
    """Whether a tag that waits must start higher: a row or the counter has come to its range.

    A counter that is far past it may have given its ids to rows that were deleted.
    """
    is_reached = not is_apart(column, tag) and not holding(column, tag)
    is_passed = not column.counter.is_below and column.counter.next > end_of(tag, column) + LEAVE
    return tag.waits_beside_column and (is_reached or is_passed or column.greatest > tag.max_value)


def findings(column: Column, tag: Tag) -> Iterator[Finding]:
    """What gives the column an id twice, and what a tag waits for that is not late."""
    name, counter = column.name, column.counter
    if column.greatest > tag.max_value:
        state = f"{name} holds {column.greatest:,}, and tag {tag.name!r} is at {tag.max_value:,}"
        mend = f"allocator tags set {tag.name} --start-after {column.greatest}"
        yield Finding("tag-below-column", DANGER, f"{state}: it will issue ids that rows have already", mend)
    if not is_apart(column, tag):
        kind, severity = ("tag-waits", OUTAGE) if tag.waits_beside_column else ("second-generator", DANGER)
        ids = f"{tag.skipped + 1:,} to {end_of(tag, column):,}"
        found = f"{name} also gets ids from {counter.name}, which can reach those of tag {tag.name!r}, {ids}"
        mend = holding(column, tag) or "name an id in each INSERT, and take the counter from the column"
        yield Finding(kind, severity, found, mend)


def is_apart(column: Column, tag: Tag) -> bool:
    """THE RULE: counter and tag never issue the same id. A MAXVALUE is taken to be older than the tag's gaps."""
    return column.counter.ends <= tag.skipped or column.counter.next > end_of(tag, column)


def holding(column: Column, tag: Tag) -> str:
    """The statement that holds a counter which has not come to the tag's range; else ""."""
    counter = column.counter
    if counter.is_below and not tag.waits_beside_column:
        return ""  # `skipped` counts gaps too: it may be above ids of the tag
    n = tag.skipped if counter.is_below else end_of(tag, column) + 1
    return counter.hold.replace("{n}", str(n)) if counter.next <= tag.skipped and n <= column.limit else ""
