"""The rows of `allocator_segment` and the statement that claims from one, as the databases carry it out.

This is the rule that the world is about, written down once. A claim takes a window of so many numbers, `span`:

    staying     (max_value, max_value + span]                 if the row was written on this server run
    crossing    (max_value + skip, max_value + skip + span]   if it was written on the run that the crossing says,
                                                              and this is the server that it says

where it does not begin below what was seen, nor end above the limit. The row then says this run, the time of the claim,
and how much was skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from allocator.rules.failover import Crossing
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import FailoverGap, Tag


class Row(NamedTuple):
    """One row of `allocator_segment`."""

    max_value: int
    step: int
    max_step: int
    limit: int
    residue: Residue = ALL
    failover_gap: FailoverGap = 0
    skipped: int = 0
    claimed_at: int = 0
    server_run: str = ""

    def tag(self, name: str) -> Tag:
        return Tag(name, *self)


@dataclass
class Rules:
    """What the statement holds to; each can be switched off, to show that it is needed."""

    run_guard: bool = True
    seen_guard: bool = True
    limit_guard: bool = True


def claimed(
    row: Row, span: int, residue: Residue, seen: int, crossing: Crossing | None, here: str, rules: Rules, at: int = 0
) -> Row | None:
    """The row after a claim on the run `here`; None where it does not match."""
    was, server, skip, run = here, here, 0, here
    if crossing is not None:
        was, server, run, skip = crossing.here.was, crossing.here.server, crossing.here.run, crossing.skip
    if rules.run_guard and (row.server_run, here) != (was, server):
        return None
    base = row.max_value + skip
    if row.residue != residue or (rules.seen_guard and base < seen) or (rules.limit_guard and base > row.limit - span):
        return None
    return row._replace(max_value=base + span, server_run=run, skipped=row.skipped + skip, claimed_at=at)
