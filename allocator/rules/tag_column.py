"""A column that a tag shares with the column's own counter: the ranges of both, and what could make them meet.

On PostgreSQL the counter has the lower range, and MAXVALUE ends it. On MySQL and MariaDB AUTO_INCREMENT follows the
greatest id that anybody inserts, so there the tag has the lower range, and the counter continues above it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.tag import Tag

LEAVE = 1_000_000
"""Ids of the lower range. The counter may use up as many before it is held."""


class Generator(NamedTuple):
    """What supplies the id of an INSERT without one: AUTO_INCREMENT, an identity, a default, a trigger.

    drop: the statement that ends it; "" where none does.
    next, ends: the range of ids that it can still issue.
    hold: the statement that ends its range at {n}, or where not `is_below` lets it continue at {n}; "" for none.
    """

    name: str
    drop: str = ""
    next: int = 1
    ends: int = MAX_ID
    hold: str = ""
    is_below: bool = False


class ColumnFacts(NamedTuple):
    """A column, as the database's catalogue and an index describe it.

    place: schema.table.column. greatest: the greatest id in it up to the limit of the tag; 0 for none.
    """

    place: str
    type: str
    limit: int
    greatest: int = 0
    generators: tuple[Generator, ...] = ()

    @property
    def reached(self) -> int:
        """The greatest id of rows and counters: rows with ids of the counter may have been deleted."""
        return max(self.greatest, *(one.next - 1 for one in self.generators), 0)


def may_write(body: str, column: str) -> bool:
    """Whether a trigger's body may assign the column or the whole row. A comparison counts, and so does no body."""
    if not body:
        return True
    name = rf"[\"`]?{re.escape(column)}[\"`]?"
    assigned = rf"\bnew\s*(\.\s*{name}\s*)?:?=|\binto\s+(strict\s+)?new\b\s*([^.\s]|\.\s*{name}|$)"
    return re.search(assigned, body, re.IGNORECASE) is not None


def planned_start(facts: ColumnFacts) -> int:
    """The number that the tag starts above. Raises `InvalidSetting` for lack of a counter that can be held, or of room.

    Where the lower range is the tag's, the counter has as many ids below it until it is held.
    """
    counter = counter_of(facts)
    start = facts.reached + LEAVE
    if start > facts.limit - (LEAVE if counter.is_below else 2 * LEAVE):
        raise InvalidSetting(
            f"{facts.place} ({facts.type}) ends at {facts.limit:,}, and {max(0, facts.limit - facts.reached):,} values "
            f"are left: too few for two ranges of {LEAVE:,}; widen the column first"
        )
    return start


def counter_of(facts: ColumnFacts) -> Generator:
    """The only generator, if it can be held apart from a tag. Raises `InvalidSetting` if it cannot."""
    for one in facts.generators:
        if not one.hold:
            raise InvalidSetting(
                f"{facts.place} gets ids from {one.name}, which cannot be held apart from a tag; stop the writers for "
                "a moment, and use --start-after-column instead"
            )
    if len(facts.generators) != 1:
        raise InvalidSetting(f"{facts.place} has no counter that issues ids; use --start-after-column instead")
    return facts.generators[0]


def is_closed(tag: Tag) -> bool:
    """Whether the tag waits until the counter is held: it ends where it starts, so nobody draws from it."""
    return tag.limit == tag.skipped


def opened(tag: Tag, facts: ColumnFacts) -> Tag:
    """The tag, with the range that a closed one gets."""
    if not is_closed(tag):
        return tag
    return replace(tag, limit=facts.limit if counter_of(facts).is_below else tag.skipped + LEAVE)


def findings(facts: ColumnFacts, tag: Tag) -> Iterator[Finding]:
    """A finding for each way in which the column gets an id twice, or one that it cannot hold."""
    place, name = facts.place, tag.name
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
    if tag.limit > facts.limit:
        yield Finding(
            "tag-limit-above-column",
            OUTAGE,
            f"tag {name!r} has the limit {tag.limit:,}, but {place} ({facts.type}) ends at {facts.limit:,}: "
            "above that, INSERTs will fail",
            f"allocator tags set {name} --limit {facts.limit}" if tag.max_value <= facts.limit else f"widen {place}",
        )
    for one in facts.generators:
        if is_apart(one, tag):
            continue
        hold = holding(one, facts, tag)
        if was_closed:
            sentence = f"{place} gets ids from {one.name}, and tag {name!r} waits until these stay out of its range, "
            yield Finding("tag-waits", OUTAGE, f"{sentence}{tag.skipped + 1:,} to {tag.limit:,}", hold or again)
            continue
        yield Finding(
            "second-generator",
            DANGER if hold or one.drop else NOTE,
            f"{place} also gets ids from {one.name}: an INSERT without an id takes one that tag {name!r} may issue",
            hold or one.drop or "name an id in each INSERT",
        )


def is_apart(generator: Generator, tag: Tag) -> bool:
    """THE RULE: generator and tag never issue the same id. No id of the tag is below those skipped at its start."""
    return generator.ends <= tag.skipped or generator.next > tag.limit


def holding(generator: Generator, facts: ColumnFacts, tag: Tag) -> str:
    """The statement that holds a generator which has not come to the tag's range; else ""."""
    n = tag.skipped if generator.is_below else tag.limit + 1
    return generator.hold.replace("{n}", str(n)) if generator.next <= tag.skipped and n <= facts.limit else ""
