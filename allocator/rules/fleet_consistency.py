"""The rows of `allocator_shard`, and the checks that several rows form one sound fleet.

Each growth of a fleet starts a new generation. Meanwhile some shards are in the old one, with a target that describes
the new one, and some in the new one. Any other difference between shards would, sooner or later, issue an id twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allocator.errors import DatabaseUnavailable, ShardMisconfigured
from allocator.rules.failover import UNMOVED, Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.ticket import CLAIM, ShardNumbering

DEFAULT_FLEET = "main"
ALONE, BEGUN = 1, 2
"""The first revision of a row: of a single database, or of a fleet. They differ so that a process which read the row
of a single database draws nothing once that database has joined a fleet."""
JOINING = 0
"""The generation of a shard that was added and issues no ids yet."""


@dataclass(frozen=True, slots=True)
class Member:
    """A shard in the rows of the fleet. `url` has no password; `epoch` counts its changes of server."""

    key: str
    offset: int
    url: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The planned generation of a growing fleet.

    floor: None until it is decided.
    turning: the growth can no longer be undone.
    attempt: greater than that of every undone growth before.
    """

    key: str
    generation: int
    attempt: int
    members: tuple[Member, ...]
    floor: int | None = None
    turning: bool = False

    @property
    def step(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Shard:
    """One row of `allocator_shard`.

    key: the shard's random key.
    is_trusted: this server may draw tickets under the row. One of several shards waits after a failover.
    tickets: how this database draws them. No other shard has to do the same.
    """

    fleet: str
    key: str
    is_trusted: bool
    generation: int
    numbering: ShardNumbering
    revision: int
    members: tuple[Member, ...]
    target: Target | None = None
    tickets: str = CLAIM
    move: Move = UNMOVED

    @property
    def joining(self) -> bool:
        return self.generation == JOINING

    @property
    def is_alone(self) -> bool:
        """Whether the row is as the schema upgrade wrote it: a single database, never part of a fleet."""
        return (self.revision, self.generation, self.numbering.step) == (ALONE, 1, 1) and self.target is None

    @property
    def residue(self) -> Residue:
        """The residues for claims of segments. None (step 0) while the fleet grows: no ceiling limits segments."""
        numbering = self.numbering
        return Residue(numbering.offset, 0 if numbering.ceiling is not None else numbering.step)


def listed(row: Shard | None) -> tuple[Member, ...]:
    """The shards that a row names, planned ones included."""
    if row is None:
        return ()
    return (*row.members, *(row.target.members if row.target else ()))


def epoch_of(shard: Shard) -> int:
    return next((member.epoch for member in shard.members if member.key == shard.key), 0)


def newer_place(shard: Shard, by: Shard) -> Member | None:
    """The entry for this shard in another shard's row, if it is newer than the shard's own."""
    return next((one for one in listed(by) if one.key == shard.key and one.epoch > epoch_of(shard)), None)


def superseded(where: str, member: Member) -> ShardMisconfigured:
    return ShardMisconfigured(
        f"{where} was replaced by {member.url}, or removed from its fleet, while it was unreachable; switch this "
        "database off, remove its URL from the list, and never use it again"
    )


def lost(where: str) -> ShardMisconfigured:
    """The error for a database without a shard row, used together with shards that have one."""
    return ShardMisconfigured(
        f"{where} has no row of allocator_shard, unlike the other shards; if it is new, add it with: "
        f"allocator shards add {where}. If it was a shard, its row is lost: do not use it"
    )


def check_usable(where: str, shard: Shard) -> None:
    """Raise if a shard may not issue ids."""
    if shard.joining:
        raise DatabaseUnavailable(f"{where} was added but issues no ids yet; run: allocator shards grow")
    if not shard.is_trusted:
        raise ShardMisconfigured(
            f"{where} is now on another server, or was restored: it may lack ids. "
            f"When nothing uses the old server any more, skip them with: allocator shards trust {where}"
        )


def check_fleet(found: Sequence[tuple[str, Shard]], fleet: str | None = None) -> None:
    """Raise `ShardMisconfigured` unless these rows, each with the name of its database, form one fleet.

    fleet: the name it must have, if given.
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


def check_joined(found: Sequence[tuple[str, Shard | None]]) -> None:
    """Raise `ShardMisconfigured` unless these databases are one fleet already. A joining shard counts."""
    rows = [(where, row) for where, row in found if row]
    check_keys(rows)
    named = {one.key for _, row in rows for one in listed(row) if len(listed(row)) > 1}
    joined = [where for where, row in rows if row.key in named]
    first = [*joined, *(where for where, _ in rows), found[0][0]][0]
    for where, _ in found:
        if where not in joined and where != first:
            raise ShardMisconfigured(
                f"{where} is in no fleet with {first}, so nothing was upgraded; upgrade each alone, then join them "
                f"with: allocator shards add {where} --url {first}"
            )
    check_fleet(rows)


def check_alone(where: str, shard: Shard, fleet: str | None) -> None:
    if shard.fleet != fleet:
        raise ShardMisconfigured(
            f"{where} is a shard of the fleet {shard.fleet!r}, not of {fleet!r}; pass fleet={shard.fleet!r}, "
            "or remove its URL from the list"
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
            f"the row of allocator_shard in {where} says shard {shard.numbering.offset} of {shard.numbering.step}, "
            f"but lists the shards {described(shard.members)}: it was changed by hand; restore it from a backup"
        )


def check_keys(found: Iterable[tuple[str, Shard]]) -> None:
    known: dict[str, str] = {}
    for where, shard in found:
        if shard.key in known:
            raise ShardMisconfigured(
                f"{known[shard.key]} and {where} are the same database under two URLs, or one is a copy: both are "
                f"shard {shard.numbering.offset} with the key {shard.key}; list the database once, and never use a copy"
            )
        known[shard.key] = where


def check_generations(found: Sequence[tuple[str, Shard]]) -> None:
    """All in one generation, or in an old one whose target is the new one."""
    newest_where, newest = max(found, key=lambda pair: pair[1].generation)
    for where, shard in found:
        coming = shard.target
        if (shard.generation, places(shard.members)) == (newest.generation, places(newest.members)):
            continue
        if coming and (coming.generation, places(coming.members)) == (newest.generation, places(newest.members)):
            if shard.numbering.ceiling is not None:
                continue
            raise ShardMisconfigured(
                f"{where} has forgotten how far the fleet has grown, as after a failover to a standby that lags, and "
                f"would give ids of {newest_where}: restore its newest backup, then run: allocator shards trust {where}"
            )
        raise ShardMisconfigured(
            f"{where} is in generation {shard.generation} with the shards {described(shard.members)}, but "
            f"{newest_where} in generation {newest.generation} with {described(newest.members)}; one is of another "
            "fleet or was restored from an old backup: remove it from the list, and add an empty database in its place "
            "(allocator shards add URL)"
        )


def places(members: Iterable[Member]) -> list[tuple[str, int]]:
    return [(member.key, member.offset) for member in members]


def check_epochs(found: Sequence[tuple[str, Shard]]) -> None:
    """None may be the former database of a shard that was replaced, or a shard that was removed."""
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
                "issue the same ids; remove one of them from the list, empty it, and add it again"
            )
        known[place] = where


def described(members: Iterable[Member]) -> str:
    return ", ".join(f"{member.offset}: {member.url}" for member in members) or "none"
