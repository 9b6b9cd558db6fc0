"""Residues: how several databases share the ids of a tag, by step and offset.

Shard `offset` of `step` owns the ids that are congruent to `offset` modulo `step`. A claim takes a window of
`size * step` numbers, which holds exactly `size` ids of the shard, wherever it begins. A single database has offset 1
and step 1, and owns every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Residue(NamedTuple):
    """The residue class of one shard. `step` is 0 while the fleet grows: then no claim is possible."""

    offset: int = 1
    step: int = 1

    def ids(self, last: int, size: int) -> range:
        """The `size` ids of this shard in the window that ends with `last`."""
        first = last - size * self.step + 1
        return range(first + (self.offset - first) % self.step, last + 1, self.step)


ALL = Residue()
NONE = Residue(1, 0)

Seen = Mapping[Residue, int]
"""The greatest id seen of each residue."""


def mark(seen: Seen, residue: Residue) -> int:
    """The greatest id that a claim must exceed. Ids of a smaller fleet count: growth continues above them."""
    return max((value for known, value in seen.items() if known == residue or known.step < residue.step), default=0)


def is_outgrown(residue: Residue, seen: Seen) -> bool:
    """Whether ids of a larger fleet were seen: then the row that names this residue is outdated."""
    return any(known.step > residue.step > 0 for known in seen)


def without_the_outgrown(seen: dict[Residue, int]) -> dict[Residue, int]:
    """Drop the residues of smaller fleets, except the one with the greatest id."""
    largest = max(residue.step for residue in seen)
    outgrown = {residue: value for residue, value in seen.items() if residue.step < largest}
    if len(outgrown) < 2:
        return seen
    greatest = max(outgrown, key=lambda residue: outgrown[residue])
    return {residue: value for residue, value in seen.items() if residue == greatest or residue.step == largest}


def merged(one: Seen, other: Seen) -> dict[Residue, int]:
    """The greatest ids that either process saw."""
    return {residue: max(one.get(residue, 0), other.get(residue, 0)) for residue in {**one, **other}}


def residue_of(segment: range) -> Residue:
    return Residue((segment.start - 1) % segment.step + 1, segment.step)
