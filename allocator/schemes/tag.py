"""A tag: one sequence of ids, as its row in the database describes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

from allocator.errors import Exhausted, InvalidCount, InvalidSetting, MaxValueWentBack, SchemaDamaged, UnknownTag
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP, check_tag, check_whole, quoted
from allocator.schemes.shared.residues import ALL, Residue, Seen, mark
from allocator.schemes.ticket import RESERVED

DEFAULT_STEP = 10
DEFAULT_MAX_STEP = 1_000_000

FailoverGap = int | Literal["auto", "refuse"]
AUTO: Final = "auto"
REFUSE: Final = "refuse"
"""Values of `failover_gap`: skip in proportion to the ids issued; stop until an operator repairs the tag."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One row of `allocator_segment`.

    max_value: the end of what was claimed or skipped; 0 before the first claim.
    step, max_step: a claim takes at least `step` ids and, at a high rate, up to `max_step`.
    limit: the greatest id that the tag may issue.
    residue: of the ids of this database, where several serve the tag; of step 0 while it is being deleted.
    failover_gap: at least how many ids are skipped after a failover or a restore, see `allocator.schemes.failover`; or
        "auto", or "refuse".
    skipped: `max_value` less what claims took: failover gaps, and numbers below its start. `fleet_rows.make` lowers it.
    claimed_at: the time of the last claim by the clock of the server, in milliseconds since 1970.
    move: the key of the last move to another server whose gap the row has.
    differs: the settings that are not the same in all databases that were asked.
    limit_from: of a tag that was just created, the column that set its limit, as `orders.id (INTEGER)`.
    """

    name: str
    max_value: int = 0
    step: int = DEFAULT_STEP
    max_step: int = DEFAULT_MAX_STEP
    limit: int = MAX_ID
    residue: Residue = ALL
    failover_gap: FailoverGap = AUTO
    skipped: int = field(default=0, compare=False)
    claimed_at: int = field(default=0, compare=False)
    move: int = field(default=0, compare=False)
    differs: str = field(default="", compare=False)
    limit_from: str = field(default="", compare=False)

    @property
    def remaining(self) -> int:
        """The number of ids that this database can still issue."""
        return max(0, self.limit - self.max_value) // max(1, self.residue.step)

    @property
    def used(self) -> float:
        """The part of the ids up to the limit that is claimed, 0 to 1."""
        return self.max_value / max(1, self.limit)

    @property
    def waits_beside_column(self) -> bool:
        """Whether it ends where it starts, so that nobody draws from it until the counter of its column is held."""
        return self.limit == self.skipped

    def checked(self) -> Tag:
        """Check settings that a caller passed; rows from the database are not checked here."""
        check_tag(self.name)
        check_whole("limit", self.limit, 1, MAX_ID)
        check_whole("start_after", self.max_value, 0, self.limit)
        check_whole("step", self.step, 1, MAX_STEP)
        check_whole("max_step", self.max_step, 1, MAX_STEP)
        gap_of(self.failover_gap)
        if self.step > self.max_step:
            raise InvalidSetting(f"step must be at most max_step, which is {self.max_step}, got {self.step}")
        return self


def gap_of(value: object) -> FailoverGap:
    """The checked `failover_gap` of a caller; None means "auto"."""
    if value is None or value == AUTO:
        return AUTO
    if value == REFUSE:
        return REFUSE
    if isinstance(value, str):
        raise InvalidSetting(f'failover_gap must be "auto", "refuse" or a number of ids, got {quoted(value)}')
    return check_whole("failover_gap", value, 0, MAX_ID)


def settle(tag: Tag | None, name: str, size: int, seen: Seen, exact: bool = False) -> int:
    """The size to claim of `tag`, which is the row with the gap that its next claim skips.

    Raises what ends the claim: `UnknownTag`, `MaxValueWentBack`, `Exhausted`, `SchemaDamaged`, or `InvalidCount`
    when fewer remain and the size must be `exact`.
    """
    check_not_back(tag, name, seen)
    if tag is None:
        raise unknown(name)
    if not tag.residue.step:
        raise UnknownTag(f"{named(name)} is being deleted; to end that: allocator tags delete {name}")
    if type(tag.max_value) is not int or type(tag.limit) is not int:
        raise damaged(name, f"max_value is {tag.max_value!r} and limit {tag.limit!r}")
    if tag.waits_beside_column:
        raise Exhausted(
            f"tag {name!r} waits beside a column and has issued no id; run again: "
            f"allocator tags create {name} --beside-column TABLE.COLUMN"
        )
    if tag.remaining == 0:
        mend = f"; raise its limit with: allocator tags set {name} --limit N, for N above {tag.limit}"
        mend = "" if is_of_tickets(name) else mend
        raise Exhausted(f"{named(name)} has issued its last id, {tag.limit}{mend}")
    if exact and tag.remaining < size:
        raise InvalidCount(f"count must be at most {tag.remaining}, the ids left of tag {name!r}, got {size}")
    return min(size, tag.remaining)


def check_not_back(tag: Tag | None, name: str, seen: Seen) -> None:
    """Raise `MaxValueWentBack` if the row is below an id that was seen."""
    highest = max(seen.values(), default=0)
    if tag is None and highest:
        if any(residue.step > 1 for residue in seen):  # other shards have the tag
            raise went_back(name, "the row is gone", highest, f"allocator tags set {name} --start-after N")
        raise went_back(name, "the row is gone", highest, f"allocator tags create {name} --start-after N")
    if tag and type(tag.max_value) is int and tag.residue.step:
        low = mark(seen, tag.residue)
        if tag.max_value < low <= highest:
            raise went_back(name, f"max_value is {tag.max_value}", low)
        if tag.max_value < low:
            raise went_back(name, "its fleet is forgotten", highest)


def unknown(name: str, known: Iterable[str] = ()) -> UnknownTag:
    """The error for a missing tag. It names similar ones of those `known`, since the name may be a typo of theirs."""
    similar = get_close_matches(name, list(known), cutoff=0.75)
    hint = f"similar tags: {', '.join(similar)}" if similar else f"create it with: allocator tags create {name}"
    return UnknownTag(f"tag {name!r} does not exist; {hint}")


def went_back(name: str, state: str, seen: int, mend: str = "") -> MaxValueWentBack:
    mend = f"({mend or f'allocator tags repair {name} --above N'}), then restart"
    if is_of_tickets(name):
        mend = "with: allocator db mark-restored"
    return MaxValueWentBack(
        f"{named(name)} is stopped: {state} in the database, but this process claimed ids up to {seen}. After a "
        f"restore or a change by hand, raise it above every id in use {mend}"
    )


def is_of_tickets(name: str) -> bool:
    """Whether a tag is reserved for the tickets of a type."""
    return name.startswith(RESERVED)


def named(name: str) -> str:
    """A tag in a message."""
    return f"ticket type {name.removeprefix(RESERVED)!r}" if is_of_tickets(name) else f"tag {name!r}"


def damaged(name: str, state: str) -> SchemaDamaged:
    return SchemaDamaged(
        f"allocator_segment was changed by hand: for tag {name!r} {state}; no id was issued; see: allocator db check"
    )
