"""The segment scheme, also known as MaxValue: a row holds the greatest id claimed, memory serves the rest.

Rules of this file:

1. It never waits, and it reads no clock: `now` is the caller's monotonic clock, in seconds.
2. Nothing is served but what `committed` brought, and that only for the one claim under way. A claim whose
   end is unknown has failed; its range, should there be one, is burnt.
3. At most one claim is under way.

Theory of operation. A segment is a `range`. It is handed out in pieces, each to be served without a word to
this file; whoever has used up a piece comes back for the next (`take`) and asks what would let it serve more
(`want`). The first piece is a tenth: its end is the low water, where the next segment is claimed. The pieces
after it last about half a second each, so that a claim which failed is tried again in time, without any timer:

    |--tenth--|---|---|---|---|---|---|      serving        |--------------------|  spare, claimed at low water
              ^ low water

A claim is as large as needed for what is left at low water to last `runway` seconds at the rate seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.errors import AllocatorError, DatabaseUnavailable, MaxValueWentBack, UnknownTag
from allocator.schemes.residues import Lane, is_outgrown, lane_of, mark, without_the_outgrown
from allocator.schemes.retry import RETRY_PAUSE, Pace, Wait
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP

LOW_WATER = 10
"""One part in so many of a segment is used when the next one is claimed."""
GROWTH = 10
"""A claim is at most so many times the last one: a burst of 100 ids says little about the next minute."""
MIN_PIECE = 100
"""A piece this small costs a third of the time of serving it; do not cut finer."""

NOTHING = range(0)


@dataclass(slots=True, eq=False)
class Claim:
    """Ask the database for `size` ids above what was `seen` of it, the greatest one that came from there so far."""

    size: int
    seen: Mapping[Lane, int]


class Segments:
    """The ids of one tag in one process. Not safe to use concurrently: callers hold a lock."""

    __slots__ = (
        "_left",
        "_length",
        "_low",
        "_measured_at",
        "_piece",
        "_size",
        "_spare",
        "_used",
        "max_step",
        "pace",
        "rate",
        "runway",
        "seen",
        "step",
        "stopped",
    )

    def __init__(self, runway: float = 60.0, lost_after: float = 60.0) -> None:
        self.step, self.max_step = DEFAULT_STEP, DEFAULT_MAX_STEP
        self.runway = runway
        self.pace: Pace[Claim] = Pace(lost_after)
        self.seen: dict[Lane, int] = {}
        self.rate = 0.0
        self.stopped: AllocatorError | None = None
        self._left = self._spare = NOTHING
        self._length = self._piece = 0
        self._low = False
        self._size = 0
        self._used = 0
        self._measured_at: float | None = None

    def take(self) -> range:
        """The next piece to serve, empty when there is none; the piece before it has been used up."""
        self._used += self._piece
        self._piece = 0
        if not self._left:
            spare, self._spare = self._spare, NOTHING  # in this order: if interrupted, it is lost and not in both
            self._left = spare
            self._length = len(self._left)
            self._low = False
            piece = self._cut(self._length // LOW_WATER)
            if piece:
                return piece
        self._low = True
        a_while = min(max(int(self.rate * RETRY_PAUSE / 2), self._length // 200), self._length // LOW_WATER)
        return self._cut(max(a_while, MIN_PIECE))

    def _cut(self, size: int) -> range:
        piece, self._left = self._left[:size], self._left[size:]
        self._piece = len(piece)
        return piece

    @property
    def held(self) -> int:
        """How many ids are here, beside those of the piece that is being served."""
        return len(self._left) + len(self._spare)

    def want(self, now: float) -> Claim | Wait | None:
        """What would let this tag serve more; a `Claim` is under way from here on."""
        if self.stopped or self._spare or (self._left and not self._low):
            return None
        if self.pace.busy(now):
            return None
        if wait := self.pace.wait(now):
            return wait
        if not self.pace.failing:
            self._measure(now)
        return self.pace.begin(Claim(self._size, dict(self.seen)), now)

    def _measure(self, now: float) -> None:
        if self._measured_at is None:
            self._size = self.step
            return
        elapsed, used = now - self._measured_at, self._used
        self._measured_at, self._used = now, 0
        self.rate = used / elapsed if elapsed > 0 else float(used) / 1e-6
        lasting = self.rate * self.runway * LOW_WATER / (LOW_WATER - 1)
        self._size = max(self.step, int(min(lasting, self._size * GROWTH, self.max_step)))

    def configure(self, step: int, max_step: int) -> None:
        """The tag's own settings, once its row was read."""
        self.step, self.max_step = step, max_step

    def resize(self, claim: Claim) -> None:
        """Give the first claim, which was decided before the settings were known, its size."""
        if claim is self.pace.under_way and self._measured_at is None:
            claim.size = self._size = self.step

    def committed(self, claim: Claim, segment: range, now: float) -> None:
        """The claim was committed and owns `segment`; a claim that is no longer under way burns it."""
        if not self.pace.succeeded(claim):
            return
        before = mark(claim.seen, lane_of(segment))
        if segment[0] <= before or is_outgrown(lane_of(segment), claim.seen):
            before = max(claim.seen.values(), default=before)
            self.stop(MaxValueWentBack(f"ids from {segment[0]} were claimed, but {before} was given out before"))
            return
        self._spare = segment
        self.saw(segment)
        if self._measured_at is None:
            self._measured_at = now

    def failed(self, claim: Claim, error: AllocatorError, now: float) -> None:
        """The claim failed, or nobody knows whether it did."""
        if not self.pace.failed(claim, error, now):
            return
        if isinstance(error, MaxValueWentBack):
            self.stop(error)
        elif isinstance(error, UnknownTag):
            self.pace.clear()  # the caller's mistake, not an outage: the next call may ask at once

    def refused(self, error: AllocatorError, now: float) -> None:
        """A block asked for beside the claims was refused: the pace of tries is one."""
        if isinstance(error, MaxValueWentBack):
            self.stop(error)
        elif isinstance(error, DatabaseUnavailable):
            self.pace.pause(error, now)

    def saw(self, segment: range) -> None:
        """A range of this tag came from the database, also one that is not served from here."""
        lane = lane_of(segment)
        self.seen[lane] = max(self.seen.get(lane, 0), segment[-1])
        self.seen = without_the_outgrown(self.seen)

    def stop(self, error: MaxValueWentBack) -> None:
        """For ever: what is in memory may belong to another process by now."""
        self.stopped = error
        self.pace.clear()
        self._left = self._spare = NOTHING
