"""A tag: one sequence of ids, and what its row in the database says of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocator.errors import (
    Exhausted,
    FleetGrowing,
    InvalidCount,
    InvalidSetting,
    MaxValueWentBack,
    SchemaDamaged,
    UnknownTag,
)
from allocator.schemes.checks import MAX_ID, MAX_STEP, check_tag, check_whole
from allocator.schemes.residues import ALL, Lane, Seen, is_outgrown, mark

DEFAULT_STEP = 1_000
DEFAULT_MAX_STEP = 1_000_000

AUTO, REFUSE = -2, -1
"""Of `failover_gap`: in proportion to what the tag gave; no id until an operator has looked."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One row of `allocator_segment`.

    max_value: the greatest id claimed so far, by whichever process; 0 before the first claim.
    step, max_step: a claim takes at least `step` ids and, at a high rate, up to `max_step`.
    limit: the greatest id the tag will ever give.
    lane: which of the ids are this database's, where several serve the tag.
    failover_gap: how many ids are skipped after a failover or a restore, see `allocator.rules.failover`; `AUTO` or
        `REFUSE`.
    skipped: how many of the numbers up to `max_value` no claim gave: gaps, and those below its start.
    claimed_at: when the row was claimed from last, by the clock of its server, in milliseconds since 1970.
    server_run: the server run that wrote the row last.
    limit_from: of a tag that was just made, the column that its limit follows, as `orders.id (INTEGER)`.
    """

    name: str
    max_value: int = 0
    step: int = DEFAULT_STEP
    max_step: int = DEFAULT_MAX_STEP
    limit: int = MAX_ID
    lane: Lane = ALL
    failover_gap: int = AUTO
    skipped: int = field(default=0, compare=False)
    claimed_at: int = field(default=0, compare=False)
    server_run: str = field(default="", compare=False)
    limit_from: str = field(default="", compare=False)

    @property
    def remaining(self) -> int:
        """How many ids this database can still give."""
        return max(0, self.limit - self.max_value) // max(1, self.lane.step)

    def checked(self) -> Tag:
        """This tag, if a caller may ask for it; rows that are read are not judged by this."""
        check_tag(self.name)
        check_whole("limit", self.limit, 1, MAX_ID)
        check_whole("start_after", self.max_value, 0, self.limit)
        check_whole("step", self.step, 1, MAX_STEP)
        check_whole("max_step", self.max_step, 1, MAX_STEP)
        check_whole("failover_gap", self.failover_gap, AUTO, MAX_ID)
        if self.step > self.max_step:
            raise InvalidSetting(f"step must be at most max_step, which is {self.max_step}, got {self.step}")
        return self


def settle(tag: Tag | None, name: str, size: int, seen: Seen, exact: bool = False) -> int:
    """A claim of `size` after what was seen matched no row, and this is the row: the size to claim instead.

    Raises what ends the claim: `UnknownTag`, `MaxValueWentBack`, `Exhausted`, `SchemaDamaged`, or `InvalidCount`
    when fewer remain and the size must be `exact`.
    """
    check_not_back(tag, name, seen)
    if tag is None:
        raise unknown(name)
    if not tag.lane.step:
        raise FleetGrowing(
            f"tag {name!r} waits while its fleet grows; if that was interrupted, go on with: allocator shards grow"
        )
    if type(tag.max_value) is not int or type(tag.limit) is not int:
        raise damaged(name, f"max_value is {tag.max_value!r} and its limit {tag.limit!r}")
    if tag.remaining == 0:
        raise Exhausted(f"tag {name!r} has given its last id, {tag.limit}; raise its limit or use another tag")
    if exact and tag.remaining < size:
        raise InvalidCount(f"count must be at most {tag.remaining}, all that remain of tag {name!r}, got {size}")
    return min(size, tag.remaining)


def check_not_back(tag: Tag | None, name: str, seen: Seen) -> None:
    """Raise `MaxValueWentBack` where the row has forgotten what was seen."""
    highest = max(seen.values(), default=0)
    if tag is None and highest:
        raise went_back(name, "the row is gone", highest)
    if tag and is_outgrown(tag.lane, seen):
        raise went_back(name, f"the fleet has {tag.lane.step} shards again", highest)
    if tag and type(tag.max_value) is int and tag.lane.step and tag.max_value < mark(seen, tag.lane):
        raise went_back(name, f"max_value is {tag.max_value}", mark(seen, tag.lane))


def unknown(name: str) -> UnknownTag:
    return UnknownTag(f"tag {name!r} does not exist; create it with: allocator tags create {name}")


def went_back(name: str, found: str, seen: int) -> MaxValueWentBack:
    return MaxValueWentBack(
        f"tag {name!r} is stopped: {found} in the database, but ids up to {seen} were claimed here; after a restore "
        f"or a change by hand, raise it above every id in use (allocator tags repair {name} --above N), then restart"
    )


def damaged(name: str, found: str) -> SchemaDamaged:
    return SchemaDamaged(
        f"allocator_segment was altered: for tag {name!r} {found}; no id was given out; see: allocator db check"
    )
