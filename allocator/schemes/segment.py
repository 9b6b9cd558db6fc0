"""The segment scheme, also known as MaxValue: a row holds the greatest id claimed, memory serves the rest.

Rules of this file:

1. It never waits, and it reads no clock: `now` is the caller's monotonic clock, in seconds.
2. Nothing is served but what `committed` brought, and that only for the one claim under way. A claim whose
   end is unknown has failed; its range, should there be one, is burnt.
3. At most one claim is under way.

Theory of operation. A segment is a `range`. It is handed out in pieces, each to be served without a word to
this file; whoever has used up a piece comes back for the next (`take`) and asks what would let it serve more
(`want`). The first piece is a tenth: its end is the low water, where the next segment is claimed. The pieces
after it last about a second each, so that a claim which failed is tried again in time, without any timer:

    |--tenth--|---|---|---|---|---|---|      serving        |--------------------|  spare, claimed at low water
              ^ low water

A claim is as large as needed for what is left at low water to last `runway` seconds at the rate seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import AllocatorError, Exhausted, MaxValueWentBack, UnknownTag
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP

LOW_WATER = 10
"""One part in so many of a segment is used when the next one is claimed."""
GROWTH = 10
"""A claim is at most so many times the last one: a burst of 100 ids says little about the next minute."""
RETRY_PAUSE = 1.0
"""Seconds between a failed claim and the next: an outage costs the database one attempt a second per tag."""
MIN_PIECE = 100
"""A piece this small costs a third of the time of serving it; do not cut finer."""

NOTHING = range(0)


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Ask the database for `size` ids above `seen`, the greatest one that came from there so far."""

    size: int
    seen: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for so many seconds, because of this failure."""

    seconds: float
    error: AllocatorError


class Segments:
    """The ids of one tag in one process. Not safe to use concurrently: callers hold a lock."""

    __slots__ = (
        "_claim",
        "_claimed_at",
        "_failure",
        "_left",
        "_length",
        "_low",
        "_measured_at",
        "_piece",
        "_retry_at",
        "_size",
        "_spare",
        "_used",
        "lost_after",
        "max_step",
        "rate",
        "runway",
        "seen",
        "step",
        "stopped",
    )

    def __init__(self, runway: float = 60.0, lost_after: float = 60.0) -> None:
        self.step, self.max_step = DEFAULT_STEP, DEFAULT_MAX_STEP
        self.runway = runway
        self.lost_after = lost_after
        self.seen = 0
        self.rate = 0.0
        self.stopped: AllocatorError | None = None
        self._left = self._spare = NOTHING
        self._length = self._piece = 0
        self._low = False
        self._claim: Claim | None = None
        self._claimed_at = self._retry_at = 0.0
        self._failure: AllocatorError | None = None
        self._size = 0
        self._used = 0
        self._measured_at: float | None = None

    @property
    def in_memory(self) -> int:
        """How many ids are left after the piece that is being served."""
        return len(self._left) + len(self._spare)

    def take(self) -> range:
        """The next piece to serve, empty when there is none; the piece before it has been used up."""
        self._used += self._piece
        self._piece = 0
        if not self._left:
            self._left, self._spare = self._spare, NOTHING
            self._length = len(self._left)
            self._low = False
            piece = self._cut(self._length // LOW_WATER)
            if piece:
                return piece
        self._low = True
        a_second = min(max(int(self.rate * RETRY_PAUSE), self._length // 100), self._length // LOW_WATER)
        return self._cut(max(a_second, MIN_PIECE))

    def _cut(self, size: int) -> range:
        piece, self._left = self._left[:size], self._left[size:]
        self._piece = len(piece)
        return piece

    def want(self, now: float) -> Claim | Wait | None:
        """What would let this tag serve more; a `Claim` is under way from here on."""
        if self.stopped or self._spare or (self._left and not self._low):
            return None
        if self._claim and now - self._claimed_at < self.lost_after:
            return None
        if self._failure and now < self._retry_at:
            return Wait(self._retry_at - now, self._failure)
        if not self._failure:
            self._measure(now)
        self._claim, self._claimed_at = Claim(self._size, self.seen), now
        return self._claim

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

    def resized(self, claim: Claim) -> Claim:
        """The claim to make in place of one that was decided before the settings were known."""
        self._size = self.step
        fresh = Claim(self.step, claim.seen)
        if claim is self._claim:
            self._claim = fresh
        return fresh

    def committed(self, claim: Claim, segment: range, now: float) -> None:
        """The claim was committed and owns `segment`; a claim that is no longer under way burns it."""
        if claim is not self._claim:
            return
        self._claim = self._failure = None
        if segment[0] <= claim.seen:
            self.stop(MaxValueWentBack(f"ids from {segment[0]} were claimed, but {claim.seen} was given out before"))
            return
        self._spare = segment
        self.saw(segment)
        if self._measured_at is None:
            self._measured_at = now

    def failed(self, claim: Claim, error: AllocatorError, now: float) -> None:
        """The claim failed, or nobody knows whether it did."""
        if claim is not self._claim:
            return
        self._claim = None
        if isinstance(error, Exhausted | MaxValueWentBack):
            self.stop(error)
        elif isinstance(error, UnknownTag):
            self._failure = None  # the caller's mistake, not an outage: the next call may ask at once
        else:
            self._failure, self._retry_at = error, now + RETRY_PAUSE

    def saw(self, segment: range) -> None:
        """A range of this tag came from the database, also one that is not served from here."""
        self.seen = max(self.seen, segment[-1])

    def stop(self, error: AllocatorError) -> None:
        """For ever. What is in memory may still be served, unless the database has forgotten it."""
        self.stopped = error
        self._claim = self._failure = None
        if isinstance(error, MaxValueWentBack):
            self._left = self._spare = NOTHING
