"""THE GROWTH PROTOCOL: how a fleet gains shards while it issues ids. Each function returns the next row of a shard.

The shard with offset 1 leads: its row alone holds the decisions. F is the floor of the new generation.

    plan      lead     the target: the members of the new generation
    decide    lead     F, above every id issued on any shard; may be raised until the turn
    fence     each     ceiling F: the old generation ends below it; claims of segments wait
    level     each     raises every tag to the greatest claim of any old shard, so that losing one is safe from here on
    turn      lead     F is final, since every old shard is fenced at F or below; no undo from here on
    enter     each     offset and step of the new generation, floor F; the lead enters last, which ends the growth

Each step is one transaction on one shard, which reads the row before it changes it. So steps may be repeated, also by
several commands at once, and after a crash another command resumes from the rows. Until the turn the growth can be
undone: first on the lead, then on the others. Old ids lie below F, new ids above F in disjoint residues: at no moment
can two shards issue the same id.

A shard that is lost for ever keeps its offset, and its residues stay unused.
- Lost after the turn: it ends below F, and the others know how far its tags went. It may return and follow.
- Lost before the turn: both are unknown, so an operator must name a number above which it issued nothing. F and every
  tag go above that number, and the shard's epoch is incremented: if it returns, processes that see the other rows
  refuse it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from allocator.errors import AllocatorError, Exhausted, ShardMisconfigured
from allocator.rules.fleet_consistency import Member, Shard, Target
from allocator.schemes.shared.argument_checks import MAX_ID, quoted
from allocator.schemes.ticket import MAX_SHARDS, ShardNumbering

LEAD = 1
"""The offset of the lead; a shard never changes its offset."""
HEADROOM = 100_000
"""The default number of tickets that each shard may still issue between the decision and the turn."""


class Again(AllocatorError):
    """Internal: another command changed the decision meanwhile; read the rows again."""


class TooLow(AllocatorError):
    """Internal: a shard issued an id above F meanwhile; decide on a higher F."""

    def __init__(self, greatest: int) -> None:
        super().__init__(greatest)
        self.greatest = greatest


def next_revision(shard: Shard, **changes: object) -> Shard:
    return replace(shard, revision=shard.revision + 1, **changes)  # type: ignore[arg-type]


def planned(lead: Shard, newcomer: Member, key: str) -> Shard:
    """The lead's row with `newcomer` as a planned member; `key` names the growth if none was planned."""
    target = lead.target or Target(key, lead.generation + 1, lead.revision, lead.members)
    if target.floor is not None:
        raise ShardMisconfigured("the fleet is growing already; finish with: allocator shards grow, then add the shard")
    serving = {member.key for member in lead.members}
    others = [member for member in target.members if member.key in serving or member.url != newcomer.url]
    if newcomer.key not in {member.key for member in others}:
        others.append(newcomer)
    if len(others) > MAX_SHARDS:
        raise ShardMisconfigured(f"a fleet has at most {MAX_SHARDS} shards, got {len(others)}")
    members = tuple(replace(member, offset=offset) for offset, member in enumerate(others, start=1))
    return next_revision(lead, target=replace(target, members=members))


def decided(lead: Shard, key: str, floor: int) -> Shard | None:
    """The lead's row with floor F raised to `floor`; None if it is as high already."""
    target = target_of(lead, key)
    if target.floor is not None and target.floor >= floor:
        return None
    if target.turning:
        raise Again
    return replace(lead, target=replace(target, floor=checked_floor(floor, target.step)))


def fenced(shard: Shard, target: Target, greatest: int) -> Shard | None:
    """The row with ceiling F; None if it has one already, or is in the new generation.

    A ceiling is never raised: a late command of an undone growth must not lift the fence of another one.
    """
    if shard.generation >= target.generation:
        return None
    if target.floor is None or (shard.target and shard.target.attempt > target.attempt):
        raise Again
    if greatest >= target.floor:
        raise TooLow(greatest)
    kept = target
    if shard.numbering.offset == LEAD:
        kept = target_of(shard, target.key)
        if kept.floor != target.floor:
            raise Again
    ceiling = min(target.floor, shard.numbering.ceiling or target.floor)
    if (shard.numbering.ceiling, shard.target) == (ceiling, kept):
        return None
    return next_revision(shard, numbering=replace(shard.numbering, ceiling=ceiling), target=kept)


def left_out(lead: Shard, key: str, lost: Collection[str], floor: int) -> Shard | None:
    """The lead's row without the `lost` shards, which issued nothing above `floor`; None after the turn."""
    target = target_of(lead, key)
    if target.turning:
        return None
    epochs = {member.key: member.epoch + 1 for member in lead.members if member.key in lost}
    members = tuple(replace(one, epoch=epochs.get(one.key, one.epoch)) for one in target.members)
    fresh = replace(target, members=members, floor=max(target.floor or 0, checked_floor(floor, target.step)))
    return replace(lead, target=fresh)


def levelled(shard: Shard, target: Target) -> Shard | None:
    """The row unchanged, to hold while its tags are raised; None if the shard is in the new generation."""
    if shard.generation >= target.generation:
        return None
    if shard.target is None or shard.target.key != target.key or shard.numbering.ceiling is None:
        raise Again
    return shard


def turning(lead: Shard, target: Target) -> Shard | None:
    """The lead's row with F final. Raises `Again` if F is no longer the ceiling that every shard got."""
    current = target_of(lead, target.key)
    if current.floor != target.floor:
        raise Again
    return None if current.turning else replace(lead, target=replace(current, turning=True))


def entered(shard: Shard, target: Target) -> Shard | None:
    """The row in the new generation, once `target` is turning."""
    if shard.generation >= target.generation:
        return None
    if not target.turning or target.floor is None:
        raise Again
    offset = next((member.offset for member in target.members if member.key == shard.key), None)
    if offset is None:
        raise ShardMisconfigured(
            f"no shard with the key {shard.key} is being added to the fleet; the shards are: allocator shards list"
        )
    return next_revision(
        shard,
        generation=target.generation,
        numbering=ShardNumbering(offset, target.step, max(target.floor, shard.numbering.floor)),
        members=target.members,
        target=None,
    )


def followed(shard: Shard, lead: Shard) -> Shard | None:
    """The row in the generation that the others entered while this shard was unreachable."""
    done = Target("", lead.generation, 0, lead.members, lead.numbering.floor, turning=True)
    return entered(shard, done)


def taken_back(shard: Shard, key: str) -> Shard | None:
    """The row as before the growth `key`; None if it takes no part in it."""
    if shard.target is None or shard.target.key != key:
        return None
    if shard.target.turning:
        raise ShardMisconfigured(
            "the growth can no longer be undone, since shards use the new numbering; finish with: allocator shards grow"
        )
    return next_revision(shard, numbering=replace(shard.numbering, ceiling=None), target=None)


def trusted(shard: Shard, floor: int) -> Shard:
    """The row with floor raised to `floor`, for the present server."""
    fresh = checked_floor(max(floor, shard.numbering.floor), shard.numbering.step)
    return next_revision(shard, numbering=replace(shard.numbering, floor=fresh))


def moved(shard: Shard, key: str, url: str, epoch: int) -> Shard:
    """The row with a new URL and epoch of one shard, this or another one."""

    def replaced(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(replace(one, url=url, epoch=epoch) if one.key == key else one for one in members)

    target = replace(shard.target, members=replaced(shard.target.members)) if shard.target else None
    return next_revision(shard, members=replaced(shard.members), target=target)


def checked_floor(floor: int, step: int) -> int:
    """Return a floor that leaves each shard a ticket. Raises `Exhausted` for a higher one."""
    if floor > MAX_ID - step:
        raise Exhausted(
            f"tickets would continue from {quoted(floor)} in steps of {step}, above the greatest id, {MAX_ID}; lower "
            "--headroom"
        )
    return floor


def target_of(lead: Shard, key: str) -> Target:
    if lead.target is None or lead.target.key != key:
        raise Again
    return lead.target
