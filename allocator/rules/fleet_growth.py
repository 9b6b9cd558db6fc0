"""How a fleet grows while it gives ids: what each shard's row becomes, step by step.

The shard with offset 1 leads: its row alone says what is decided. F is the floor of the new generation.

    plan      lead     the target: who the members will be
    decide    lead     F, above all that was given anywhere; may be raised until the fleet turns
    fence     each     ceiling F: the old generation ends below it; segments wait
    level     each     every tag as far as any old shard has claimed it, so that one of them may be lost from here on
    turn      lead     no way back: F is what it is, since every old shard is fenced at F or below
    enter     each     offset and step of the new generation, floor F; the lead comes last, which ends it

Every step is one transaction on one shard, which looks at the row before it changes it. So any of them may be done
again, also by several commands at once, and one that died is followed by another which goes on from what the rows say.
Until the turn it can be taken back: first the lead, then the others. Old ids lie below F, new ones above it in disjoint
remainders: at no moment can two shards give the same id.

A shard that is lost for good keeps its place, and nobody else uses its remainder. Lost after the turn, it ends below F
and the others know how far its tags went; it may still come back and follow. Lost before, neither is sure: an operator
must say above which number it gave nothing. F and every tag are then above that, and its epoch goes up: should it come
back, whoever sees a row of the others leaves it alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from allocator.errors import AllocatorError, Exhausted, ShardMisconfigured
from allocator.rules.fleet import Member, Shard, Target
from allocator.schemes.checks import MAX_ID, quoted
from allocator.schemes.ticket import MAX_SHARDS, Numbering

LEAD = 1
"""The offset of the shard whose row decides; a shard keeps its offset for ever."""
HEADROOM = 100_000
"""Tickets that each shard may still give between the decision and the turn, by default."""


class Again(AllocatorError):
    """Not for callers. Somebody else changed what was decided meanwhile: look again."""


class TooLow(AllocatorError):
    """Not for callers. A shard has given an id above F meanwhile: decide on a higher one."""

    def __init__(self, greatest: int) -> None:
        super().__init__(greatest)
        self.greatest = greatest


def later(shard: Shard, **changes: object) -> Shard:
    return replace(shard, revision=shard.revision + 1, **changes)  # type: ignore[arg-type]


def planned(lead: Shard, newcomer: Member | None, key: str, statement: str | None = None) -> Shard:
    """With `newcomer` among those to come, under a `key` if nothing was planned before."""
    target = lead.target or Target(key, lead.generation + 1, lead.revision, lead.statement, lead.members)
    if target.floor is not None:
        raise ShardMisconfigured(
            "the fleet is growing already; go on with: allocator shards grow, and add to it afterwards"
        )
    if newcomer:
        serving = {member.key for member in lead.members}
        others = [member for member in target.members if member.key in serving or member.url != newcomer.url]
        if newcomer.key not in {member.key for member in others}:
            others.append(newcomer)
        if len(others) > MAX_SHARDS:
            raise ShardMisconfigured(f"a fleet has at most {MAX_SHARDS} shards")
        members = tuple(replace(member, offset=offset) for offset, member in enumerate(others, start=1))
        target = replace(target, members=members)
    return later(lead, target=replace(target, statement=statement or target.statement))


def decided(lead: Shard, key: str, floor: int) -> Shard | None:
    """F, or a higher one; None where it is as high already."""
    target = wanted(lead, key)
    if target.floor is not None and target.floor >= floor:
        return None
    if target.turning:
        raise Again
    return replace(lead, target=replace(target, floor=within(floor, target.step)))


def fenced(shard: Shard, target: Target, greatest: int) -> Shard | None:
    """Below F from here on; None where it is so already, or entered the new generation before.

    A ceiling is never raised: whoever comes late, with a growth that was taken back, must not loosen another one.
    """
    if shard.generation >= target.generation:
        return None
    if target.floor is None or (shard.target and shard.target.attempt > target.attempt):
        raise Again
    if greatest >= target.floor:
        raise TooLow(greatest)
    kept = target
    if shard.numbering.offset == LEAD:
        kept = wanted(shard, target.key)
        if kept.floor != target.floor:
            raise Again
    ceiling = min(target.floor, shard.numbering.ceiling or target.floor)
    if (shard.numbering.ceiling, shard.target) == (ceiling, kept):
        return None
    return later(shard, numbering=replace(shard.numbering, ceiling=ceiling), target=kept)


def left_out(lead: Shard, key: str, lost: Collection[str], floor: int) -> Shard | None:
    """Without the shards that have these keys, which gave nothing above `floor`; None after the turn."""
    target = wanted(lead, key)
    if target.turning:
        return None
    epochs = {member.key: member.epoch + 1 for member in lead.members if member.key in lost}
    members = tuple(replace(one, epoch=epochs.get(one.key, one.epoch)) for one in target.members)
    fresh = replace(target, members=members, floor=max(target.floor or 0, within(floor, target.step)))
    return replace(lead, target=fresh)


def levelled(shard: Shard, target: Target) -> Shard | None:
    """As it is: its tags are to be raised while nobody claims any. None where it has entered before."""
    if shard.generation >= target.generation:
        return None
    if shard.target is None or shard.target.key != target.key or shard.numbering.ceiling is None:
        raise Again
    return shard


def turning(lead: Shard, target: Target) -> Shard | None:
    """No way back, if F is still what every shard was fenced with."""
    current = wanted(lead, target.key)
    if current.floor != target.floor:
        raise Again
    return None if current.turning else replace(lead, target=replace(current, turning=True))


def entered(shard: Shard, target: Target) -> Shard | None:
    """In the new generation, with `target` turning."""
    if shard.generation >= target.generation:
        return None
    if not target.turning or target.floor is None:
        raise Again
    offset = next((member.offset for member in target.members if member.key == shard.key), None)
    if offset is None:
        raise ShardMisconfigured(f"a shard with the key {shard.key} is not among those that the fleet grows to")
    return later(
        shard,
        statement=target.statement,
        generation=target.generation,
        numbering=Numbering(offset, target.step, target.floor),
        members=target.members,
        target=None,
    )


def followed(shard: Shard, lead: Shard) -> Shard | None:
    """In the generation that the others entered without it, while it was away."""
    done = Target("", lead.generation, 0, lead.statement, lead.members, lead.numbering.floor, turning=True)
    return entered(shard, done)


def taken_back(shard: Shard, key: str) -> Shard | None:
    """As before the growth `key`; None where there is nothing of it."""
    if shard.target is None or shard.target.key != key:
        return None
    if shard.target.turning:
        raise ShardMisconfigured(
            "the fleet has begun to turn to its new shards, and cannot go back; go on with: allocator shards grow"
        )
    return later(shard, numbering=replace(shard.numbering, ceiling=None), target=None)


def trusted(shard: Shard, floor: int) -> Shard:
    """Going on from `floor`, on the server where it is now."""
    ceiling = shard.numbering.ceiling
    if ceiling is not None and floor >= ceiling:
        raise ShardMisconfigured(f"the fleet is growing, and this shard ends at {ceiling}: run allocator shards grow")
    fresh = within(max(floor, shard.numbering.floor), shard.numbering.step)
    return later(shard, numbering=replace(shard.numbering, floor=fresh))


def moved(shard: Shard, key: str, url: str, epoch: int) -> Shard:
    """Knowing where another shard, or this one, goes on."""

    def replaced(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(replace(one, url=url, epoch=epoch) if one.key == key else one for one in members)

    target = replace(shard.target, members=replaced(shard.target.members)) if shard.target else None
    return later(shard, members=replaced(shard.members), target=target)


def within(floor: int, step: int) -> int:
    """A floor above which each shard has a ticket left. Raises `Exhausted` for another."""
    if floor > MAX_ID - step:
        raise Exhausted(
            f"tickets in steps of {step} would go on from {quoted(floor)}, and end at {MAX_ID}; a smaller headroom "
            "(--headroom) leaves fewer out"
        )
    return floor


def wanted(lead: Shard, key: str) -> Target:
    if lead.target is None or lead.target.key != key:
        raise Again
    return lead.target
