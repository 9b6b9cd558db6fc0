"""Delta and remainder: which ids of a tag are those of one database, where several serve it.

Shard `offset` of `step` owns the ids that leave the remainder `offset` when divided by `step`. A claim takes a window
of `size * step` numbers, which holds exactly `size` ids of the shard, wherever it begins. A single database has offset
1 and step 1: every number is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Lane(NamedTuple):
    """`step` is 0 while the fleet grows: nothing is claimed then."""

    offset: int = 1
    step: int = 1

    def ids(self, last: int, size: int) -> range:
        """The `size` ids of this shard in the window that ends with `last`."""
        first = last - size * self.step + 1
        return range(first + (self.offset - first) % self.step, last + 1, self.step)


ALL = Lane()
NONE = Lane(1, 0)

Seen = Mapping[Lane, int]
"""For each lane the greatest id that came from there."""


def mark(seen: Seen, lane: Lane) -> int:
    """Where the lane must go on above: a fleet only ever grows, and begins anew above all that it gave before."""
    return max((value for known, value in seen.items() if known == lane or known.step < lane.step), default=0)


def is_outgrown(lane: Lane, seen: Seen) -> bool:
    """Whether ids were seen of a larger fleet: whoever says that this is the lane now has forgotten those."""
    return any(known.step > lane.step > 0 for known in seen)


def without_the_outgrown(seen: dict[Lane, int]) -> dict[Lane, int]:
    """The same marks with fewer lanes: of those of smaller fleets only the greatest says anything."""
    largest = max(lane.step for lane in seen)
    outgrown = {lane: value for lane, value in seen.items() if lane.step < largest}
    if len(outgrown) < 2:
        return seen
    greatest = max(outgrown, key=lambda lane: outgrown[lane])
    return {lane: value for lane, value in seen.items() if lane == greatest or lane.step == largest}


def merged(one: Seen, other: Seen) -> dict[Lane, int]:
    """What two processes have seen together."""
    return {lane: max(one.get(lane, 0), other.get(lane, 0)) for lane in {**one, **other}}


def lane_of(segment: range) -> Lane:
    return Lane((segment.start - 1) % segment.step + 1, segment.step)
