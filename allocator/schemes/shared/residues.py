"""Residues: how several databases share the ids of a tag, by step and offset.

Shard `offset` of `step` owns the ids that are congruent to `offset` modulo `step`. A claim takes a window of
`size * step` numbers, which holds exactly `size` ids of the shard, wherever it begins. A single database has offset 1
and step 1, and owns every number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Lane(NamedTuple):
    """The residue class of one shard. `step` is 0 while the fleet grows: then no claim is possible."""

    offset: int = 1
    step: int = 1

    def ids(self, last: int, size: int) -> range:
        """The `size` ids of this shard in the window that ends with `last`."""
        first = last - size * self.step + 1
        return range(first + (self.offset - first) % self.step, last + 1, self.step)


ALL = Lane()
NONE = Lane(1, 0)

Seen = Mapping[Lane, int]
"""The greatest id seen of each lane."""


def mark(seen: Seen, lane: Lane) -> int:
    """The greatest id that a claim in `lane` must exceed. Ids of a smaller fleet count: growth continues above them."""
    return max((value for known, value in seen.items() if known == lane or known.step < lane.step), default=0)


def is_outgrown(lane: Lane, seen: Seen) -> bool:
    """Whether ids of a larger fleet were seen: then the row that names this lane is outdated."""
    return any(known.step > lane.step > 0 for known in seen)


def without_the_outgrown(seen: dict[Lane, int]) -> dict[Lane, int]:
    """Drop the lanes of smaller fleets, except the one with the greatest id."""
    largest = max(lane.step for lane in seen)
    outgrown = {lane: value for lane, value in seen.items() if lane.step < largest}
    if len(outgrown) < 2:
        return seen
    greatest = max(outgrown, key=lambda lane: outgrown[lane])
    return {lane: value for lane, value in seen.items() if lane == greatest or lane.step == largest}


def merged(one: Seen, other: Seen) -> dict[Lane, int]:
    """The greatest ids that either process saw."""
    return {lane: max(one.get(lane, 0), other.get(lane, 0)) for lane in {**one, **other}}


def lane_of(segment: range) -> Lane:
    return Lane((segment.start - 1) % segment.step + 1, segment.step)
