"""Import tags from the id servers Leaf and tinyid: find the greatest id that their rows can have issued.

    Leaf      a claim owns [max_id - step, max_id): the greatest id is max_id - 1
    tinyid    a claim owns (max_id - step, max_id], and each of `delta` databases issues the ids of one remainder; the
              ids above the greatest max_id are free, if the databases of all remainders were read

The rows come from foreign tables, so every value in them is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from allocator.errors import InvalidSetting, InvalidTag
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP, check_tag, check_whole
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
    """A name that cannot be imported. The message is one sentence and contains the name."""

    name: str
    message: str


Decision = Tag | Refusal
"""The tag to create, with the greatest id that can have been issued as `max_value`; or a refusal."""

Row = TypeVar("Row", LeafRow, TinyidRow)


def leaf(rows: Iterable[LeafRow]) -> list[Decision]:
    """Decide on each name in Leaf's rows; of several rows of one name, the greatest `max_id` counts."""
    return decisions(rows, last_of_leaf)


def tinyid(rows: Iterable[TinyidRow]) -> list[Decision]:
    """Decide on each name in the rows of all tinyid databases."""
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
    """The greatest valid step of the rows, or the default."""
    steps = [row.step for row in rows if type(row.step) is int and 1 <= row.step <= MAX_STEP]
    return max(steps, default=DEFAULT_STEP)


def last_of_leaf(rows: Sequence[LeafRow]) -> int:
    return max(0, max(max_id_of(row) for row in rows) - 1)


def last_of_tinyid(rows: Sequence[TinyidRow]) -> int:
    last = max(max_id_of(row) for row in rows)
    deltas = {check_whole("delta", row.delta, 1, MAX_ID) for row in rows}
    if len(deltas) > 1:
        raise InvalidSetting(
            f"delta differs between databases: {' and '.join(map(str, sorted(deltas)))}; set the same in all of them"
        )
    check_complete([check_whole("remainder", row.remainder, 0, max(deltas) - 1) for row in rows], max(deltas), last)
    return last


def check_complete(remainders: Sequence[int], delta: int, last: int) -> None:
    ((most, times),) = Counter(remainders).most_common(1)
    if times > 1:
        raise InvalidSetting(
            f"{times} rows have the remainder {most}; name each database once, and only databases of one tinyid group"
        )
    if len(remainders) < delta:
        raise InvalidSetting(
            f"delta is {delta}, so {delta} databases may issue ids, one for each remainder, but rows of only "
            f"{len(remainders)} were read; name all databases with --from, or if there are no others, create the tag "
            f"yourself with --start-after {last} or more"
        )


def max_id_of(row: Row) -> int:
    return check_whole("max_id", row.max_id, 0, MAX_ID)
