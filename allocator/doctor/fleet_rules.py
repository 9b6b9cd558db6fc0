"""Whether the databases that were given together are the shards of one sound fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from allocator.errors import AllocatorError
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Severity, few
from allocator.rules.fleet import Shard, check_alone, check_epochs, check_generations, check_keys, check_offsets, lost


class Looked(NamedTuple):
    """One database as it was found.

    row: of `allocator_shard`, None where there is none; `reached` is False where it could not be read.
    server: the identity that ids are fenced by; machine: what is lost together. told: the URL by which others know it.
    """

    where: str
    row: Shard | None
    server: str = ""
    machine: str = ""
    told: str = ""
    reached: bool = True
    has_tickets: bool = True


def of_fleet(found: Sequence[Looked]) -> list[Finding]:
    rows = [(one.where, one.row) for one in found if one.row]
    return [
        *(finding for one in found for finding in of_shard(one, bool(rows))),
        *of_rows(rows),
        *of_members(found),
        *of_growth(rows),
        *of_machines(found),
    ]


def of_shard(one: Looked, is_fleet: bool) -> list[Finding]:
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
                f"{one.where} runs on server {one.server}, and its row of allocator_shard was written on "
                f"{row.server}: it "
                "gives no tickets, since after a failover or a restore some may be forgotten",
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
                f"{rows[0][0]} is a shard of the fleet {first!r}, and {few(strangers)}: they are refused together",
                "take those out of the list",
            )
        ]
    return [
        *refused("shard-copied", DANGER, check_keys, rows),
        *refused("shard-replaced", DANGER, check_epochs, serving),
        *refused("shard-offset-twice", DANGER, check_offsets, serving),
        *(refused("shard-generations-differ", DANGER, check_generations, serving) if serving else []),
    ]


def of_members(found: Sequence[Looked]) -> list[Finding]:
    """Of those that the rows name, some may not have been given: they were not looked at."""
    known = {one.row.key for one in found if one.row} | {one.told for one in found}
    named = {member.key: member.url for one in found if one.row for member in one.row.members}
    missing = sorted({url for key, url in named.items() if not {key, url} & known})
    if not missing:
        return []
    return [
        Finding(
            "shard-not-given",
            NOTE,
            f"the fleet has {len(named)} shards, and these were not looked at: {few(missing)}",
            "give --url once for each shard",
        )
    ]


def of_growth(rows: Sequence[tuple[str, Shard]]) -> list[Finding]:
    held = [where for where, row in rows if row.numbering.ceiling is not None]
    turned = len({row.generation for _, row in rows if not row.joining}) > 1
    planned = [where for where, row in rows if row.target and row.target.floor is None]
    if held or turned:
        shown = few(held) or "some shards"
        return [
            Finding(
                "growth-interrupted",
                OUTAGE,
                f"the fleet is growing, and {shown} claim no segments until it has ended",
                "if nothing runs that lets it grow, go on with allocator shards grow, or back with "
                "allocator shards grow --take-back",
            )
        ]
    return [
        Finding(
            "growth-planned",
            NOTE,
            f"{where} names shards that were added and give no ids yet; until they do, tags cannot be raised",
            "go on with allocator shards grow, or back with allocator shards grow --take-back",
        )
        for where in planned
    ]


def of_machines(found: Sequence[Looked]) -> list[Finding]:
    machines: dict[str, list[str]] = {}
    for one in found:
        if one.machine:
            machines.setdefault(one.machine, []).append(one.where)
    return [
        Finding(
            "shards-on-one-server",
            NOTE,
            f"{few(names)} are on one server, and are away together",
            "move all but one of them to servers of their own, or use one database",
        )
        for names in machines.values()
        if len(names) > 1
    ]


def refused(name: str, severity: Severity, check: Callable[..., None], *arguments: object) -> list[Finding]:
    """What a check of the fleet refuses, which says after a semicolon what to do."""
    try:
        check(*arguments)
    except AllocatorError as error:
        found, _, mend = str(error).partition("; ")
        return [Finding(name, severity, found, mend or "see docs/fleets.md")]
    return []


def raised(error: AllocatorError) -> None:
    raise error
