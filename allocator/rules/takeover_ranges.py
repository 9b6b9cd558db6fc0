"""Takeover of a live column: two ranges that cannot overlap, one for the column's own counter and one for a tag.

On PostgreSQL the counter keeps the lower range, and MAXVALUE limits it. On MySQL and MariaDB AUTO_INCREMENT follows the
greatest id that anybody inserts, so there the tag gets the lower range, and the counter continues above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from allocator.errors import InvalidSetting
from allocator.rules.days_left import DAY
from allocator.schemes.tag import Tag

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}

SAFETY = 4
"""The size of the lower range: this factor times the ids that the given time needs at the measured rate."""
LEAST_RANGE = 1_000_000
"""Ids that the lower range holds at least in a wide column: the rate may be unknown."""
LEAST_LEFT = 4_000
"""Ids. A column with fewer left is refused: one claim of a tag takes 1000."""
REPLICA = "this server is a read-only replica; use the primary"

State = Literal["started", "going back", "finished", "given back"]


class Trigger(NamedTuple):
    """A trigger before each INSERT. text: its body; "" if that cannot be read."""

    name: str
    text: str


class Remedy(NamedTuple):
    """Statements that a user may run; "" for none.

    drop: remove the column's own counter, so that INSERTs without an id fail. widen: give the column 64 bits. find:
    select the rows from {low} to {high}.
    """

    drop: str = ""
    widen: str = ""
    find: str = ""


NO_REMEDY = Remedy()


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column, as the database's catalog and its index describe it.

    place: schema.table.column.
    counter: the native counter, "" for none. given: the last id that it issued. ends: the last id that it can issue.
    below: whether a takeover gives the counter the lower range.
    obstacles: sentences that say why this database cannot let a tag take over.
    quoted: table and column, quoted for a statement. sequence: PostgreSQL's, quoted too.
    always: the column refuses explicit ids (GENERATED ALWAYS).
    is_indexed: an index begins with the column, so its greatest value is found without a scan.
    generates: what supplies the id of an INSERT without one; "" for nothing.
    """

    place: str
    type: str
    limit: int
    greatest: int = 0
    counter: str = ""
    given: int = 0
    ends: int = 0
    increment: int = 1
    cache: int = 1
    is_whole: bool = True
    is_indexed: bool = True
    is_key: bool = True
    is_partitioned: bool = False
    is_replica: bool = False
    below: bool = True
    triggers: tuple[Trigger, ...] = ()
    references: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    quoted: tuple[str, str] = ("", "")
    sequence: str = ""
    always: bool = False
    generates: str = ""
    remedy: Remedy = NO_REMEDY

    @property
    def column(self) -> str:
        return self.place.rpartition(".")[2]

    @property
    def table(self) -> str:
        return self.place.rpartition(".")[0]

    @property
    def reached(self) -> int:
        """The greatest id of the rows and of the counter."""
        return max(0, self.greatest, self.given)


class Ranges(NamedTuple):
    """First and last id of each range, both included."""

    native_first: int
    native_last: int
    tag_first: int
    tag_last: int

    @property
    def meet(self) -> bool:
        return self.native_first <= self.tag_last and self.tag_first <= self.native_last

    @property
    def native_is_below(self) -> bool:
        return self.native_last < self.tag_first


@dataclass(frozen=True, slots=True)
class Takeover:
    """A row of `allocator_takeover`.

    counter: the native counter, as the database names it.
    given: the last id that it had issued at `given_at`, when a command last found that it had moved.
    started_given: the last id that it had issued at the start.
    """

    place: str
    tag: str
    state: State
    ranges: Ranges
    counter: str
    given: int
    given_at: int
    started_given: int
    started_at: int


def seconds_of(text: str) -> float:
    """Parse a duration such as 7d, 12h, 30m or 90s. Raises `InvalidSetting`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise InvalidSetting(f"a duration is a number with s, m, h or d, as in 7d, got {text!a:.80}")
    return float(match[1]) * UNITS[match[2]]


def a_day(before: int, after: int, seconds: float) -> float:
    """The rate between two readings; 0 if no time passed between them."""
    return max(0, after - before) / seconds * DAY if seconds > 0 else 0.0


def refusal(facts: ColumnFacts) -> str:
    """The first reason why a tag cannot take over this column; empty if it can."""
    return next(refusals(facts), "")


def refusals(facts: ColumnFacts) -> Iterator[str]:
    """Each reason why a tag cannot take over this column, as a sentence."""
    place, table = facts.place, facts.table
    if facts.is_replica:
        yield REPLICA
    if facts.is_partitioned:
        yield f"{table} is partitioned or has child tables, and a takeover does not check where its partitions end"
    if not facts.is_key:
        yield f"{place} has no primary or unique key of its own, and without one the database accepts repeated ids"
    yield from facts.obstacles
    if not facts.counter:
        yield f"{place} has no counter (AUTO_INCREMENT, identity or serial), so there is nothing to take over"
    if facts.increment < 1:
        yield f"the counter of {place} counts down, by {facts.increment}"
    for trigger in facts.triggers:
        if may_write(trigger, facts.column):
            yield f"the trigger {trigger.name} on {table} may write {facts.column} before each insert; drop it first"


def may_write(trigger: Trigger, column: str) -> bool:
    """Whether a trigger's text may assign the column or the whole row; a comparison counts as an assignment."""
    if not trigger.text:
        return True
    name = rf"[\"`]?{re.escape(column)}[\"`]?"
    assigned = rf"\bnew\s*(\.\s*{name}\s*)?:?=|\binto\s+(strict\s+)?new\b\s*([^.\s]|\.\s*{name}|$)"
    return re.search(assigned, trigger.text, re.IGNORECASE) is not None


def plan(facts: ColumnFacts, per_day: float, seconds: float) -> Ranges:
    """The two ranges. Raises `InvalidSetting` if a tag cannot take the column over, or if it is too small."""
    if why := refusal(facts):
        raise InvalidSetting(why)
    reached, left = facts.reached, facts.limit - facts.reached
    if left < 0:  # a BIGINT UNSIGNED
        raise InvalidSetting(f"{facts.place} is at {facts.reached:,}, and no tag gives ids above {facts.limit:,}")
    need = ceil(per_day * seconds / DAY)
    # A tag below the counter begins an hour of ids further on: the counter gives those until the command has its lock.
    ahead = 0 if facts.below else min(left // 100, 1_000) + ceil(per_day / 24)
    size = min(max(SAFETY * need, LEAST_RANGE), left // 2 - ahead)
    if left < LEAST_LEFT or size < 2 * need or size < LEAST_LEFT // 4:
        raise InvalidSetting(
            f"{facts.place} ({facts.type}) ends at {facts.limit:,}, and {left:,} values are left: too few for two "
            f"ranges, where {seconds / DAY:g} days at {per_day:,.0f} ids a day need {need:,}; widen the column first"
        )
    last = reached + ahead + size
    if facts.below:
        return Ranges(facts.given + 1, last, last + 1, facts.limit)
    return Ranges(last + 1, facts.limit, reached + ahead + 1, last)


def tag_refusal(tag: Tag | None, mine: Takeover | None) -> str:
    """Why this tag cannot take over the column; empty if it can."""
    if tag is None or not tag.claimed_at or (mine is not None and mine.tag == tag.name):
        return ""
    return (
        f"tag {tag.name!r} has issued ids up to {tag.max_value:,}, which processes may still hold in memory; name a "
        "tag that is not used yet"
    )


def is_begun(takeover: Takeover | None, facts: ColumnFacts, tag: Tag | None, name: str) -> bool:
    """Whether the tag `name` has started this takeover already. Raises `InvalidSetting` if it cannot start."""
    if takeover and takeover.state != "given back":
        if takeover.tag != name:
            raise InvalidSetting(f"{takeover.place} is taken over by tag {takeover.tag!r} already")
        if takeover.state != "started":
            place = takeover.place
            raise InvalidSetting(f"{place} is {takeover.state}; first run: allocator takeover back {place}")
        return True
    if why := refusal(facts) or tag_refusal(tag, takeover):
        raise InvalidSetting(why)
    return False


def is_finished(takeover: Takeover) -> bool:
    """Whether the takeover is finished already. Raises `InvalidSetting` if there is nothing to finish."""
    if takeover.state not in {"started", "finished"}:
        raise InvalidSetting(
            f"cannot finish the takeover of {takeover.place}: it is {takeover.state}; only a started takeover can be "
            "finished"
        )
    return takeover.state == "finished"


def ranges_after(takeover: Takeover, tag: Tag | None, facts: ColumnFacts, seconds: float, now_ms: int) -> Ranges:
    """The ranges after `back`. The tag keeps ids for `seconds`."""
    if tag is None:
        raise InvalidSetting(f"tag {takeover.tag!r} is gone, so the ids that it has issued are not known")
    if not takeover.ranges.native_is_below:  # the counter is above the tag already
        return takeover.ranges
    return back_ranges(takeover, tag, facts, rate_of_tag(takeover, tag, now_ms), seconds)


def back_ranges(takeover: Takeover, tag: Tag, facts: ColumnFacts, per_day: float, seconds: float) -> Ranges:
    """The ranges where the tag keeps ids for the time that its writers need, and the counter continues above."""
    reached = max(facts.reached, tag.max_value, takeover.ranges.tag_first - 1)
    left = facts.limit - reached
    need = ceil(per_day * seconds / DAY)
    last = reached + min(max(SAFETY * need, LEAST_RANGE), left // 2)
    if left < LEAST_LEFT:
        raise InvalidSetting(
            f"{facts.place} ({facts.type}) has only {left:,} values left above all ids; widen it first"
        )
    return Ranges(last + 1, facts.limit, takeover.ranges.tag_first, last)


def passed(facts: ColumnFacts, given: int) -> InvalidSetting:
    """The error for a counter that has passed the planned range."""
    return InvalidSetting(f"{facts.place} reached {given:,} while this command ran; run it again")


def still_writes(takeover: Takeover, given: int, now_ms: int, idle: float) -> str:
    """Why the takeover cannot be finished yet: the counter moved within `idle` seconds; empty if it did not."""
    if given != takeover.given:
        wrote = f"the counter moved from {takeover.given:,} to {given:,} since the last check"
    elif now_ms - takeover.given_at < idle * 1000:
        wrote = f"the counter moved {(now_ms - takeover.given_at) / 1000:,.0f} seconds ago, or was first checked then"
    else:
        return ""
    return (
        f"{takeover.place} may still be written the old way: {wrote}; stop those writers, and run this again when the "
        f"counter has stood still for {idle:,.0f} seconds (--idle)"
    )


def problems(takeover: Takeover, tag: Tag | None, facts: ColumnFacts, greatest: int) -> list[str]:
    """Why an id could repeat, a sentence each; empty if it is proven that none can.

    greatest: the greatest row in the tag's range, read before the tag, which only rises.
    """
    meet = "the two ranges of this takeover overlap: its row was changed by hand" * takeover.ranges.meet
    of_counter = "" if takeover.state == "finished" else problem_of_counter(takeover, facts)
    return [one for one in (meet, problem_of_tag(takeover, tag, greatest), of_counter) if one]


def problem_of_tag(takeover: Takeover, tag: Tag | None, greatest: int) -> str:
    """Why the tag could leave its range; empty if it cannot."""
    ranges, name = takeover.ranges, takeover.tag
    if tag is None:
        return f"tag {name!r} is gone; create it with --start-after {max(greatest, ranges.tag_first - 1)}"
    if tag.max_value < ranges.tag_first - 1:
        return f"tag {name!r} is at {tag.max_value:,}, below its range"
    if tag.limit > ranges.tag_last:
        return f"tag {name!r} may go to {tag.limit:,}, above its range; lower its limit to {ranges.tag_last}"
    if greatest > tag.max_value:
        return f"a row has {greatest:,}, which tag {name!r} has not issued yet: it is at {tag.max_value:,}"
    return ""


def problem_of_counter(takeover: Takeover, facts: ColumnFacts) -> str:
    """Why the counter could leave its range; empty if it cannot."""
    ranges = takeover.ranges
    if not facts.counter:
        return f"the counter of {takeover.place} is gone"
    if ranges.native_is_below and facts.ends > ranges.native_last:
        return f"the counter may go to {facts.ends:,}, above its range: it was changed by hand"
    if not ranges.native_is_below and facts.given + facts.increment < ranges.native_first:
        return f"the counter is at {facts.given:,}, below its range: it was set back by hand"
    return ""


def proof(takeover: Takeover) -> str:
    """Why no id repeats, for a takeover without problems."""
    ranges, tag = takeover.ranges, takeover.tag
    if takeover.state == "finished":
        return f"only tag {tag!r} issues ids: an INSERT without an id fails"
    if ranges.native_is_below:
        return f"the counter fails above {ranges.native_last:,}, and tag {tag!r} began at {ranges.tag_first:,}"
    return f"tag {tag!r} ends at {ranges.tag_last:,}, and the counter continued at {ranges.native_first:,}"


def issued(takeover: Takeover, tag: Tag | None, given: int) -> tuple[int, int]:
    """Ids that counter and tag have issued since the start, at most: no rows are counted."""
    of_tag = tag.max_value - takeover.ranges.tag_first + 1 if tag else 0
    return max(0, given - takeover.started_given), max(0, of_tag)


def rate_of_tag(takeover: Takeover, tag: Tag, now_ms: int) -> float:
    """Ids that the tag has issued a day since the start."""
    return a_day(takeover.ranges.tag_first - 1, tag.max_value, (now_ms - takeover.started_at) / 1000)


def lower_range_ends_in(takeover: Takeover, tag: Tag | None, given: int, now_ms: int) -> float | None:
    """Days until the lower range is used up, at the rate since the start; None without a rate."""
    ranges = takeover.ranges
    if ranges.native_is_below:
        left, per_day = (
            ranges.native_last - given,
            a_day(takeover.started_given, given, (now_ms - takeover.started_at) / 1000),
        )
    else:
        left, per_day = (ranges.tag_last - tag.max_value, rate_of_tag(takeover, tag, now_ms)) if tag else (0, 0.0)
    return max(0, left) / per_day if per_day else None


def notes(facts: ColumnFacts) -> Sequence[str]:
    """Sentences to show before the start."""
    found = []
    if facts.references:
        found.append(f"foreign keys that reference it: {', '.join(facts.references)}; they are not changed")
    if facts.cache > 1:
        found.append(f"sessions hold up to {facts.cache} cached values each; all are below the new end of the counter")
    return found
