"""Rules on several databases: whether they form one sound fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from allocator.errors import AllocatorError
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Severity, few
from allocator.rules.fleet import Shard, check_alone, check_epochs, check_generations, check_keys, check_offsets, lost


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


def of_fleet(shards: Sequence[ShardFacts]) -> list[Finding]:
    rows = [(one.where, one.row) for one in shards if one.row]
    return [
        *(finding for one in shards for finding in of_shard(one, bool(rows))),
        *of_rows(rows),
        *of_members(shards),
        *of_growth(rows),
        *of_machines(shards),
    ]


def of_shard(one: ShardFacts, is_fleet: bool) -> list[Finding]:
    row = one.row
    if row is None:
        return refused("shard-row-lost", OUTAGE, raised, lost(one.where)) if one.reached and is_fleet else []
    if row.joining:
        return []
    found = refused("shard-contradictory", DANGER, check_alone, one.where, row, row.fleet)
    if row.server not in {"", one.server}:
        found.append(
            Finding(
                "shard-on-another-server",
                OUTAGE if one.has_tickets or row.numbering.step > 1 else NOTE,
                f"{one.where} is now on server {one.server}, not {row.server}: it issues no tickets, since after a "
                "failover or a restore it may lack some",
                f"when nothing uses the old server any more: allocator shards trust {one.where}",
            )
        )
    return found


def of_rows(rows: Sequence[tuple[str, Shard]]) -> list[Finding]:
    serving = [(where, row) for where, row in rows if not row.joining]
    first = rows[0][1].fleet if rows else ""
    strangers = [f"{where} is of {row.fleet!r}" for where, row in rows if row.fleet != first]
    if strangers:
        return [
            Finding(
                "shards-of-several-fleets",
                OUTAGE,
                f"{rows[0][0]} is a shard of the fleet {first!r}, but {few(strangers)}: they cannot be used together",
                "remove the latter from the list",
            )
        ]
    return [
        *refused("shard-copied", DANGER, check_keys, rows),
        *refused("shard-replaced", DANGER, check_epochs, serving),
        *refused("shard-offset-twice", DANGER, check_offsets, serving),
        *(refused("shard-generations-differ", DANGER, check_generations, serving) if serving else []),
    ]


def of_members(shards: Sequence[ShardFacts]) -> list[Finding]:
    """Shards that the rows list, but that were not examined."""
    known = {one.row.key for one in shards if one.row} | {one.listed_url for one in shards}
    named = {member.key: member.url for one in shards if one.row for member in one.row.members}
    missing = sorted({url for key, url in named.items() if not {key, url} & known})
    if not missing:
        return []
    return [
        Finding(
            "shard-not-given",
            NOTE,
            f"the fleet has {len(named)} shards, and these were not examined: {few(missing)}",
            "pass --url once for each shard",
        )
    ]


def of_growth(rows: Sequence[tuple[str, Shard]]) -> list[Finding]:
    fenced = [where for where, row in rows if row.numbering.ceiling is not None]
    has_begun = len({row.generation for _, row in rows if not row.joining}) > 1
    planned = [where for where, row in rows if row.target and row.target.floor is None]
    if fenced or has_begun:
        shown = few(fenced) or "some shards"
        return [
            Finding(
                "growth-interrupted",
                OUTAGE,
                f"the fleet is growing: no segments can be claimed on {shown} until the growth ends",
                "if no command is growing it, resume with allocator shards grow, or undo with "
                "allocator shards grow --take-back",
            )
        ]
    return [
        Finding(
            "growth-planned",
            NOTE,
            f"{where} lists shards that were added but issue no ids yet; until they do, tags cannot be raised",
            "finish with allocator shards grow, or undo with allocator shards grow --take-back",
        )
        for where in planned
    ]


def of_machines(shards: Sequence[ShardFacts]) -> list[Finding]:
    machines: dict[str, list[str]] = {}
    for one in shards:
        if one.machine:
            machines.setdefault(one.machine, []).append(one.where)
    return [
        Finding(
            "shards-on-one-server",
            NOTE,
            f"{few(names)} are on one server, so they fail together",
            "move all but one of them to servers of their own, or use one database",
        )
        for names in machines.values()
        if len(names) > 1
    ]


def refused(name: str, severity: Severity, check: Callable[..., None], *arguments: object) -> list[Finding]:
    """The finding from a failing check; the text after the first semicolon of its message is the remedy."""
    try:
        check(*arguments)
    except AllocatorError as error:
        found, _, mend = str(error).partition("; ")
        return [Finding(name, severity, found, mend or "see docs/fleets.md")]
    return []


def raised(error: AllocatorError) -> None:
    raise error
