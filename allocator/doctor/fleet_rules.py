"""Rules on several databases: whether they form one sound fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from allocator.doctor.examination import Examination
from allocator.errors import AllocatorError
from allocator.rules.findings import DANGER, OUTAGE, Finding, Severity, few, unchecked
from allocator.rules.fleet_consistency import check_fleet, check_usable, lost


def of_fleet(shards: Sequence[Examination]) -> Iterator[Finding]:
    # Of several databases, one with an unused row is no shard.
    rows = [(one.where, one.shard) for one in shards if one.shard and (one.is_member or len(shards) == 1)]
    of_shards = dict(rows)
    for one in shards:
        row = of_shards.get(one.where)
        if row is None and one.reached and rows:
            yield from refused("shard-row-lost", OUTAGE, raised, lost(one.where))
        elif row and not row.joining:
            yield from refused("shard-on-another-server", OUTAGE, check_usable, one.where, row)
    yield from refused("shards-contradict", DANGER, check_fleet, rows)
    known = {row.key for _, row in rows} | {one.url for one in shards}
    named = {member.key: member.url for _, row in rows for member in row.members}
    if unseen := sorted({url for key, url in named.items() if not {key, url} & known}):
        yield unchecked("all shards", f"these were not given: {few(unseen)}", "pass --url once for each shard")
    fenced = [where for where, row in rows if row.numbering.ceiling is not None]
    if fenced or len({row.generation for _, row in rows if not row.joining}) > 1:
        yield Finding(
            "growth-interrupted",
            OUTAGE,
            f"the fleet is growing: no segments can be claimed on {few(fenced) or 'some shards'} until the growth ends",
            "if no command is growing it, resume with allocator shards grow, or undo with "
            "allocator shards grow --take-back",
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
