"""The rows of `allocator_segment` and the statement that claims from one, as the databases carry it out.

This is the rule that the world is about, written down once. A claim takes a window of so many numbers, `span`:

    (max_value + skip, max_value + skip + span]

where the row has the key that is expected, the shard's row the key and the server run, and this is that server; and
where it does not begin below what was seen, nor end above the limit. The row then has the shard's key, the time of the
claim, and how much was skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from allocator.database.verbs.segments import Fence
from allocator.schemes.failover import Move
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
    move: int = 0

    def tag(self, name: str) -> Tag:
        return Tag(name, *self)


@dataclass
class Rules:
    """What the statement holds to; each can be switched off, to show that it is needed."""

    run_guard: bool = True
    seen_guard: bool = True
    limit_guard: bool = True


def claimed(
    row: Row, shard: Move, here: str, span: int, fence: Fence, seen: int, rules: Rules, at: int = 0
) -> Row | None:
    """The row after a claim on the server run `here`; None where it does not match."""
    known = (row.move, shard.key, shard.run, here)
    if rules.run_guard and known != (fence.row_move, fence.shard_move, fence.run, fence.run):
        return None
    base = row.max_value + fence.skip
    if row.residue != fence.residue:
        return None
    if (rules.seen_guard and base < seen) or (rules.limit_guard and base > row.limit - span):
        return None
    return row._replace(max_value=base + span, move=fence.shard_move, skipped=row.skipped + fence.skip, claimed_at=at)
