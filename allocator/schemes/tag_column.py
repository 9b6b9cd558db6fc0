"""A column that a tag shares with the column's own counter: the ranges of both, and what could make them meet.

On PostgreSQL the counter has the lower range, and MAXVALUE ends it. On MySQL and MariaDB AUTO_INCREMENT follows the
greatest id that anybody inserts, so there the tag has the lower range, and the counter continues above it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.findings import DANGER, OUTAGE, Finding
from allocator.schemes.tag import Tag

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


class ColumnFacts(NamedTuple):
    """A column as its database describes it.

    place: as it was named. limit: the greatest id that its type holds.
    greatest: the greatest id in it up to the limit of the tag; 0 for none.
    """

    place: str
    limit: int
    greatest: int = 0
    counter: Counter | None = None


def planned_start(facts: ColumnFacts) -> int:
    """The number that the tag starts above. Raises `InvalidSetting` for lack of a counter that can be held, or of room.

    Where the lower range is the tag's, the counter has as many ids below it until it is held.
    """
    counter = facts.counter
    if counter is None or not counter.hold:
        raise InvalidSetting(
            f"{facts.place} has no counter that can be held apart from a tag; stop the writers for a moment, and use "
            "--start-after-column instead"
        )
    reached = max(facts.greatest, counter.next - 1)  # rows with ids of the counter may have been deleted
    start = reached + LEAVE
    if start > facts.limit - (LEAVE if counter.is_below else 2 * LEAVE):
        raise InvalidSetting(
            f"{facts.place} ends at {facts.limit:,}, and {max(0, facts.limit - reached):,} values are left: too few "
            f"for two ranges of {LEAVE:,}; widen the column first"
        )
    return start


def is_closed(tag: Tag) -> bool:
    """Whether the tag waits until the counter is held: it ends where it starts, so nobody draws from it."""
    return tag.limit == tag.skipped


def opened(tag: Tag, facts: ColumnFacts) -> Tag:
    """The tag, with the range that a closed one gets."""
    if not is_closed(tag):
        return tag
    is_above = facts.counter is None or facts.counter.is_below
    return replace(tag, limit=facts.limit if is_above else tag.skipped + LEAVE)


def findings(facts: ColumnFacts, tag: Tag) -> Iterator[Finding]:
    """A finding for each way in which the column gets an id twice."""
    place, name, counter = facts.place, tag.name, facts.counter
    again = f"allocator tags delete {name}; then allocator tags create {name} --beside-column {shlex.quote(place)}"
    tag, was_closed = opened(tag, facts), is_closed(tag)
    if facts.greatest > tag.max_value:
        yield Finding(
            "tag-below-column",
            DANGER,
            f"{place} holds {facts.greatest:,}, and tag {name!r} is at {tag.max_value:,}: it will issue ids that rows "
            "have already",
            again if was_closed else f"allocator tags set {name} --start-after {facts.greatest}",
        )
    if counter is None or is_apart(counter, tag):
        return
    if was_closed:
        sentence = f"{place} gets ids from {counter.name}, and tag {name!r} waits until these stay out of its range, "
        mend = holding(counter, facts, tag) or again
        yield Finding("tag-waits", OUTAGE, f"{sentence}{tag.skipped + 1:,} to {tag.limit:,}", mend)
    else:
        yield Finding(
            "second-generator",
            DANGER,
            f"{place} also gets ids from {counter.name}: an INSERT without an id takes one that tag {name!r} may issue",
            holding(counter, facts, tag) or "name an id in each INSERT, and take the counter from the column",
        )


def is_apart(counter: Counter, tag: Tag) -> bool:
    """THE RULE: counter and tag never issue the same id. No id of the tag is below those skipped at its start."""
    return counter.ends <= tag.skipped or counter.next > tag.limit


def holding(counter: Counter, facts: ColumnFacts, tag: Tag) -> str:
    """The statement that holds a counter which has not come to the tag's range; else ""."""
    n = tag.skipped if counter.is_below else tag.limit + 1
    return counter.hold.replace("{n}", str(n)) if counter.next <= tag.skipped and n <= facts.limit else ""
