"""Rules on several databases: whether they form one sound fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from allocator.errors import AllocatorError
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Severity, few
from allocator.rules.fleet_consistency import (
    Shard,
    check_alone,
    check_epochs,
    check_generations,
    check_keys,
    check_offsets,
    lost,
)


class ShardFacts(NamedTuple):
    """The facts on one database.

    row: its row of `allocator_shard`, if it has one.
    server: the identity of its server, which fences ids.
    machine: databases with the same machine fail together.
    listed_url: its URL in the rows of the other shards.
    reached: whether the row could be read.
    """

    where: str
    row: Shard | None
    server: str = ""
    machine: str = ""
    listed_url: str = ""
    reached: bool = True
    has_tickets: bool = True


def of_fleet(shards: Sequence[ShardFacts]) -> Iterator[Finding]:
    rows = [(one.where, one.row) for one in shards if one.row]
    for one in shards:
        yield from of_shard(one, bool(rows))
    yield from of_rows(rows)
    yield from of_members(shards)
    yield from of_growth(rows)
    yield from of_machines(shards)


def of_shard(one: ShardFacts, is_fleet: bool) -> Iterator[Finding]:
    row = one.row
    if row is None:
        if one.reached and is_fleet:
            yield from refused("shard-row-lost", OUTAGE, raised, lost(one.where))
        return
    if row.joining:
        return
    yield from refused("shard-contradictory", DANGER, check_alone, one.where, row, row.fleet)
    if not row.is_on(one.server):
        yield Finding(
            "shard-on-another-server",
            OUTAGE if one.has_tickets or row.numbering.step > 1 else NOTE,
            f"{one.where} is now on server {one.server}, not {row.server}: it issues no tickets, since after a "
            "failover or a restore it may lack some",
            f"when nothing uses the old server any more: allocator shards trust {one.where}",
        )


def of_rows(rows: Sequence[tuple[str, Shard]]) -> Iterator[Finding]:
    serving = [(where, row) for where, row in rows if not row.joining]
    first = rows[0][1].fleet if rows else ""
    strangers = [f"{where} is of {row.fleet!r}" for where, row in rows if row.fleet != first]
    if strangers:
        yield Finding(
            "shards-of-several-fleets",
            OUTAGE,
            f"{rows[0][0]} is a shard of the fleet {first!r}, but {few(strangers)}: they cannot be used together",
            "remove the latter from the list",
        )
        return
    yield from refused("shard-copied", DANGER, check_keys, rows)
    yield from refused("shard-replaced", DANGER, check_epochs, serving)
    yield from refused("shard-offset-twice", DANGER, check_offsets, serving)
    if serving:
        yield from refused("shard-generations-differ", DANGER, check_generations, serving)


def of_members(shards: Sequence[ShardFacts]) -> Iterator[Finding]:
    """Shards that the rows list, but that were not examined."""
    known = {one.row.key for one in shards if one.row} | {one.listed_url for one in shards}
    named = {member.key: member.url for one in shards if one.row for member in one.row.members}
    missing = sorted({url for key, url in named.items() if not {key, url} & known})
    if missing:
        yield Finding(
            "shard-not-given",
            NOTE,
            f"the fleet has {len(named)} shards, and these were not examined: {few(missing)}",
            "pass --url once for each shard",
        )


def of_growth(rows: Sequence[tuple[str, Shard]]) -> Iterator[Finding]:
    fenced = [where for where, row in rows if row.numbering.ceiling is not None]
    has_begun = len({row.generation for _, row in rows if not row.joining}) > 1
    if fenced or has_begun:
        yield Finding(
            "growth-interrupted",
            OUTAGE,
            f"the fleet is growing: no segments can be claimed on {few(fenced) or 'some shards'} until the growth ends",
            "if no command is growing it, resume with allocator shards grow, or undo with "
            "allocator shards grow --take-back",
        )
        return
    for where, row in rows:
        if row.target and row.target.floor is None:
            yield Finding(
                "growth-planned",
                NOTE,
                f"{where} lists shards that were added but issue no ids yet; until they do, tags cannot be raised",
                "finish with allocator shards grow, or undo with allocator shards grow --take-back",
            )


def of_machines(shards: Sequence[ShardFacts]) -> Iterator[Finding]:
    machines = defaultdict[str, list[str]](list)
    for one in shards:
        machines[one.machine].append(one.where)
    for machine, names in machines.items():
        if machine and len(names) > 1:
            yield Finding(
                "shards-on-one-server",
                NOTE,
                f"{few(names)} are on one server, so they fail together",
                "move all but one of them to servers of their own, or use one database",
            )


def refused(name: str, severity: Severity, check: Callable[..., None], *arguments: object) -> Iterator[Finding]:
    """The finding from a failing check; the text after the first semicolon of its message is the remedy."""
    try:
        check(*arguments)
    except AllocatorError as error:
        found, _, mend = str(error).partition("; ")
        yield Finding(name, severity, found, mend or "see docs/fleets.md")


def raised(error: AllocatorError) -> None:
    raise error
