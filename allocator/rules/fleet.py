"""What a database knows of itself as a shard, and whether several such rows make one sound fleet.

A fleet has a generation, which all shards enter when it grows. While it does, some are in the old one, with a target
that says what comes, and some in the new one. Any other difference is a mistake that would give an id twice, or soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.errors import DatabaseUnavailable, ShardMisconfigured
from allocator.schemes.residues import Lane
from allocator.schemes.ticket import Numbering

DEFAULT_FLEET = "main"
REPLACE, COUNT = STATEMENTS = ("replace", "count")
"""The statement of the original scheme, and the one that only adds."""
ALONE, BEGUN = 1, 2
"""The first revision of a row: written by an upgrade of the schema for a database of its own, or for a fleet. A process
that knows the first draws nothing by it from the second."""
JOINING = 0
"""The generation of a shard that was added and gives no ids yet."""


@dataclass(frozen=True, slots=True)
class Member:
    """A shard as the others know it; `url` is without password. `epoch` goes up when it moves to another server."""

    key: str
    offset: int
    url: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What a fleet grows to. `floor` is None while it is only planned; `turning` once there is no way back.

    `attempt` is greater than that of any growth which was taken back before.
    """

    key: str
    generation: int
    attempt: int
    statement: str
    members: tuple[Member, ...]
    floor: int | None = None
    turning: bool = False

    @property
    def step(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of `allocator_shard`. `key` is the shard's own, drawn at random; `server` wrote the row."""

    fleet: str
    key: str
    server: str
    statement: str
    generation: int
    numbering: Numbering
    revision: int
    members: tuple[Member, ...]
    target: Target | None = None

    @property
    def joining(self) -> bool:
        return self.generation == JOINING

    @property
    def is_alone(self) -> bool:
        """As an upgrade of the schema writes it: the only shard, and never changed."""
        return (self.revision, self.generation, self.numbering.step) == (ALONE, 1, 1) and self.target is None

    @property
    def lane(self) -> Lane:
        """What segments may be claimed of: nothing while the fleet grows, since a segment has no ceiling that would
        keep it below the next generation."""
        numbering = self.numbering
        return Lane(numbering.offset, 0 if numbering.ceiling is not None else numbering.step)


def listed(row: Shard | None) -> tuple[Member, ...]:
    """The shards that a row names, also those to come."""
    if row is None:
        return ()
    return (*row.members, *(row.target.members if row.target else ()))


def epoch_of(shard: Shard) -> int:
    return next((member.epoch for member in shard.members if member.key == shard.key), 0)


def newer_place(shard: Shard, by: Shard) -> Member | None:
    """What another row says of this shard, if that is newer than what the shard itself knows."""
    return next((one for one in listed(by) if one.key == shard.key and one.epoch > epoch_of(shard)), None)


def superseded(where: str, member: Member) -> ShardMisconfigured:
    return ShardMisconfigured(
        f"{where} was replaced by {member.url}, or left out of its fleet, while it was away; switch this database off, "
        "take it out of the list, and never use it again"
    )


def lost(where: str) -> ShardMisconfigured:
    """A database without a row among shards that have one."""
    return ShardMisconfigured(
        f"{where} is no shard of the fleet of the others; if it was one, its row of allocator_shard is lost, and it "
        f"must not be used; if it is new, add it with: allocator shards add {where}"
    )


def check_usable(where: str, shard: Shard, server: str) -> None:
    """Raise where no ids may come from a shard whose database is now on `server`."""
    if shard.joining:
        raise DatabaseUnavailable(f"{where} was added and gives no ids yet; run: allocator shards grow")
    if shard.server not in {"", server}:
        raise ShardMisconfigured(
            f"{where} runs on server {server}, and its shard was written on {shard.server}: after a failover or a "
            "restore ids may be forgotten here. When nothing uses the old one any more, go on above all ids with: "
            f"allocator shards trust {where}"
        )


def check_fleet(found: Sequence[tuple[str, Shard]], fleet: str | None = None) -> None:
    """Raise `ShardMisconfigured` unless these rows, each with the name of its database, are shards of one fleet.

    That is the fleet of this name, if one is given.
    """
    fleet = fleet or (found[0][1].fleet if found else None)
    for where, shard in found:
        check_alone(where, shard, fleet)
    check_keys(found)
    serving = [(where, shard) for where, shard in found if not shard.joining]
    if serving:
        check_epochs(serving)
        check_offsets(serving)
        check_generations(serving)


def check_alone(where: str, shard: Shard, fleet: str | None) -> None:
    if shard.fleet != fleet:
        raise ShardMisconfigured(
            f"{where} is a shard of the fleet {shard.fleet!r}, and not of {fleet!r}; give fleet={shard.fleet!r}, "
            "or take its URL out of the list"
        )
    if shard.joining:
        return
    try:
        shard.numbering.checked()
    except ShardMisconfigured as error:
        raise ShardMisconfigured(f"{where}: {error}") from None
    listed = [member for member in shard.members if member.key == shard.key]
    if not listed or listed[0].offset != shard.numbering.offset or len(shard.members) != shard.numbering.step:
        raise ShardMisconfigured(
            f"{where} says that it is shard {shard.numbering.offset} of {shard.numbering.step}, and lists the shards "
            f"{described(shard.members)}; allocator_shard was changed by hand, restore it"
        )


def check_keys(found: Iterable[tuple[str, Shard]]) -> None:
    known: dict[str, str] = {}
    for where, shard in found:
        if shard.key in known:
            raise ShardMisconfigured(
                f"{known[shard.key]} and {where} are one database under two URLs, or one is a copy of the other: both "
                f"are shard {shard.numbering.offset} with the key {shard.key}; list it once, and never use a copy"
            )
        known[shard.key] = where


def check_generations(found: Sequence[tuple[str, Shard]]) -> None:
    """One generation, or an old one on its way to the new one."""
    newest_where, newest = max(found, key=lambda pair: pair[1].generation)
    for where, shard in found:
        coming = shard.target
        is_there = (shard.generation, places(shard.members), shard.statement)
        if is_there == (newest.generation, places(newest.members), newest.statement):
            continue
        if coming and (coming.generation, places(coming.members)) == (newest.generation, places(newest.members)):
            continue
        raise ShardMisconfigured(
            f"{where} is of generation {shard.generation} with the shards {described(shard.members)}, and "
            f"{newest_where} of generation {newest.generation} with {described(newest.members)}; they are not of one "
            "fleet, or one was restored from an old copy: take it out of the list, and add it anew with an empty "
            "database (allocator shards add)"
        )


def places(members: Iterable[Member]) -> list[tuple[str, int]]:
    return [(member.key, member.offset) for member in members]


def check_epochs(found: Sequence[tuple[str, Shard]]) -> None:
    """None of them may be the old server of a shard that goes on elsewhere, or one that was left out."""
    newest: dict[str, Member] = {}
    for _, shard in found:
        for member in shard.members:
            if member.epoch > newest.get(member.key, member).epoch or member.key not in newest:
                newest[member.key] = member
    for where, shard in found:
        if shard.key in newest and epoch_of(shard) < newest[shard.key].epoch:
            raise superseded(where, newest[shard.key])


def check_offsets(found: Iterable[tuple[str, Shard]]) -> None:
    known: dict[tuple[int, int], str] = {}
    for where, shard in found:
        place = (shard.generation, shard.numbering.offset)
        if place in known:
            raise ShardMisconfigured(
                f"{known[place]} and {where} both have offset {place[1]} of step {shard.numbering.step}, and would "
                "give the same ids; take one of them out of the list, empty it, and add it anew"
            )
        known[place] = where


def described(members: Iterable[Member]) -> str:
    return ", ".join(f"{member.offset}: {member.url}" for member in members) or "none"
