"""A tag and the column that its ids are inserted into: what the doctor finds, and how both get ids side by side.

Side by side, the column's own counter and the tag have ranges that cannot overlap. On PostgreSQL the counter has the
lower one, and MAXVALUE ends it. On MySQL and MariaDB AUTO_INCREMENT follows the greatest id that anybody inserts, so
there the tag has the lower range, and the counter continues above it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding
from allocator.schemes.shared.argument_checks import MAX_ID, check_whole
from allocator.schemes.tag import Tag


class Generator(NamedTuple):
    """What supplies the id of an INSERT without one: AUTO_INCREMENT, an identity, a default, a trigger.

    drop: the statement that ends it; "" where none does.
    next, ends: the range of ids that it can still issue, each `step` after the one before.
    hold: the statement that ends its range at {n}, or where not `is_below` lets it continue at {n}; "" for none.
    skip: the statement that lets it continue at {n} or above; "" where `next` is not known.
    """

    name: str
    drop: str = ""
    next: int = 1
    ends: int = MAX_ID
    hold: str = ""
    is_below: bool = False
    step: int = 1
    skip: str = ""


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


def findings(facts: ColumnFacts, name: str, tag: Tag | None) -> Iterator[Finding]:
    """A finding for each way in which the column gets an id twice, or one that it cannot hold."""
    place = facts.place
    if tag is None:
        yield Finding(
            "tag-missing",
            DANGER if facts.reached else NOTE,
            f"{place} holds {facts.greatest:,}, and tag {name!r} does not exist: its first use would start it at 1",
            f"allocator tags create {name} --start-after {facts.reached} --start-after-column {shlex.quote(place)}",
        )
        return
    if facts.greatest > tag.max_value:
        yield Finding(
            "tag-below-column",
            DANGER,
            f"{place} holds {facts.greatest:,}, and tag {name!r} is at {tag.max_value:,}: it will issue ids that rows "
            "have already",
            f"allocator tags set {name} --start-after {facts.greatest}",
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
        if not is_apart(one, tag):
            yield Finding(
                "second-generator",
                DANGER if one.drop else NOTE,
                f"{place} also gets ids from {one.name}: an INSERT without an id takes one that tag {name!r} may issue",
                one.drop or "name an id in each INSERT",
            )


def is_apart(generator: Generator, tag: Tag) -> bool:
    """THE RULE: generator and tag never issue the same id. No id of the tag is below those skipped at its start."""
    return generator.ends <= tag.skipped or generator.next > tag.limit


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


def held_at(facts: ColumnFacts, leave: int) -> int:
    """Where to hold the counter, so that the lower range has `leave` ids. Raises `InvalidSetting` for lack of room.

    Where the lower range is the tag's, the counter has as many ids below it until it is held.
    """
    counter = counter_of(facts)
    n = facts.reached + (leave if counter.is_below else 2 * leave + 1)
    if n > facts.limit - leave:
        raise InvalidSetting(
            f"{facts.place} ({facts.type}) ends at {facts.limit:,}, and {max(0, facts.limit - facts.reached):,} values "
            f"are left: too few for two ranges of {leave:,}; lower --leave, or widen the column first"
        )
    return n


def beside(facts: ColumnFacts, leave: int, start_after: int, limit: int | None) -> tuple[int, int]:
    """Start and limit of a tag beside the held counter. Raises `InvalidSetting` where the two could meet.

    limit: as planned. On MySQL the counter does not tell it: free ids below the counter may be those of deleted rows.
    """
    counter = counter_of(facts)
    if counter.is_below:
        if counter.ends >= facts.limit:
            raise unheld(f"{counter.name} may issue ids up to {counter.ends:,}", counter, held_at(facts, leave))
        start, end = max(start_after, counter.ends), limit or facts.limit
    elif limit is None:
        raise InvalidSetting(
            f"free ids below {counter.name} may be those of deleted rows; name the --limit that --dry-run printed"
        )
    elif counter.next <= limit:
        raise unheld(f"{counter.name} is at {counter.next:,}, not above {limit:,}", counter, limit + 1)
    else:
        start, end = max(start_after, limit - leave), limit
    if facts.greatest > start:
        raise InvalidSetting(
            f"{facts.place} holds {facts.greatest:,}, and the tag would start after {start:,}; plan again with "
            "--dry-run"
        )
    return start, check_whole("limit", end, 1, facts.limit, hint=f"; {facts.place} holds no greater value")


def unheld(why: str, counter: Generator, n: int) -> InvalidSetting:
    return InvalidSetting(f"{why}; first run: {holding(counter, n)}")


def holding(counter: Generator, n: int) -> str:
    return counter.hold.replace("{n}", str(n))
