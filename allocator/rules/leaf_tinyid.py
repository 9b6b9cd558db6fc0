"""Taking over from the id servers Leaf and tinyid: what their rows say of the ids that can have been given.

    Leaf      a claim owns [max_id - step, max_id): the greatest id is max_id - 1
    tinyid    a claim owns (max_id - step, max_id], and each of `delta` databases gives the ids of one remainder: what
              is above the greatest max_id is free, when the databases of all remainders were looked at

Rows are as they were read, from tables that are not ours: nothing in them is taken for granted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from allocator.errors import InvalidSetting, InvalidTag
from allocator.schemes.checks import MAX_ID, MAX_STEP, check_tag, check_whole
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, Tag


class LeafRow(NamedTuple):
    name: object
    max_id: object
    step: object


class TinyidRow(NamedTuple):
    name: object
    max_id: object
    step: object
    delta: object
    remainder: object


@dataclass(frozen=True, slots=True)
class Refusal:
    """A name that cannot be taken over; the message is one sentence, and has the name in it."""

    name: str
    message: str


Decision = Tag | Refusal
"""The tag as it is to be made, its `max_value` the greatest id that can have been given."""

Row = TypeVar("Row", LeafRow, TinyidRow)


def leaf(rows: Iterable[LeafRow]) -> list[Decision]:
    """By name. One that several databases have goes on after the greatest of them."""
    return decisions(rows, last_of_leaf)


def tinyid(rows: Iterable[TinyidRow]) -> list[Decision]:
    """By name; `rows` are those of all databases together."""
    return decisions(rows, last_of_tinyid)


def decisions(rows: Iterable[Row], last_of: Callable[[Sequence[Row]], int]) -> list[Decision]:
    named: dict[object, list[Row]] = {}
    for row in rows:
        named.setdefault(row.name, []).append(row)
    return [decision(name, named[name], last_of) for name in sorted(named, key=str)]


def decision(name: object, rows: Sequence[Row], last_of: Callable[[Sequence[Row]], int]) -> Decision:
    try:
        tag = check_tag(name)
    except InvalidTag as error:
        return Refusal(str(name), str(error))
    try:
        last, step = last_of(rows), step_of(rows)
    except InvalidSetting as error:
        return Refusal(tag, f"{tag}: {error}")
    return Tag(tag, last, step, max(DEFAULT_MAX_STEP, step))


def step_of(rows: Sequence[Row]) -> int:
    """Theirs, the greatest where they differ, unless it is none that a tag may have."""
    steps = [row.step for row in rows if type(row.step) is int and 1 <= row.step <= MAX_STEP]
    return max(steps, default=DEFAULT_STEP)


def last_of_leaf(rows: Sequence[LeafRow]) -> int:
    return max(0, max(max_id_of(row) for row in rows) - 1)


def last_of_tinyid(rows: Sequence[TinyidRow]) -> int:
    last = max(max_id_of(row) for row in rows)
    deltas = {check_whole("delta", row.delta, 1, MAX_ID) for row in rows}
    if len(deltas) > 1:
        raise InvalidSetting(
            f"delta is {' and '.join(map(str, sorted(deltas)))}, and must be the same in all databases"
        )
    check_complete([check_whole("remainder", row.remainder, 0, max(deltas) - 1) for row in rows], max(deltas), last)
    return last


def check_complete(remainders: Sequence[int], delta: int, last: int) -> None:
    ((most, times),) = Counter(remainders).most_common(1)
    if times > 1:
        raise InvalidSetting(
            f"{times} rows have the remainder {most}; name each database once, and those of one group of servers alone"
        )
    if len(remainders) < delta:
        raise InvalidSetting(
            f"{len(remainders)} of {delta} remainders were found; name the databases of all of them with --from, or if "
            f"there are no others make the tag yourself, after {last} or later"
        )


def max_id_of(row: Row) -> int:
    return check_whole("max_id", row.max_id, 0, MAX_ID)
