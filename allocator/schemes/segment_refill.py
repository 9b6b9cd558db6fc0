"""The segment scheme (MaxValue) and its refill rule: a row holds the greatest id claimed; ids are served from memory.

Rules of this file:

1. It never waits, and it reads no clock: `now` is the caller's monotonic clock, in seconds.
2. It serves only ranges that `committed` got for the claim under way. A claim with an unknown outcome counts as
   failed; its range, if there is one, is burnt.
3. At most one claim is under way.

Theory of operation. A segment is a `range`. It is served in pieces; the caller serves a piece without this file,
then calls `take` for the next and `want` for the next step: a claim, a wait or nothing. The first piece is a tenth of
the segment, and its end is the low water, where the next segment is claimed. Later pieces last about half a second
each, so that a failed claim is retried in time, without a timer:

    |--tenth--|---|---|---|---|---|---|      serving        |--------------------|  spare, claimed at low water
              ^ low water

A claim is large enough for the ids left at low water to last `runway` seconds at the measured rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from allocator.errors import AllocatorError, DatabaseUnavailable, MaxValueWentBack, UnknownTag
from allocator.schemes.shared.residues import Residue, is_outgrown, mark, residue_of, without_the_outgrown
from allocator.schemes.shared.retry_pace import RETRY_PAUSE, Pace, Wait
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP

LOW_WATER = 10
"""The next segment is claimed once 1/10 of this one is used."""
GROWTH = 10
"""A claim is at most 10 times the last one: a burst of 100 ids says little about the next minute."""
MIN_PIECE = 100
"""The least size of a piece: taking one of 100 ids already costs a third of the time of serving them."""

NOTHING = range(0)


@dataclass(slots=True, eq=False)
class Claim:
    """A request for `size` ids. `seen` is the greatest id known of each residue; the ids must be above it."""

    size: int
    seen: Mapping[Residue, int]


class Segments:
    """The ids of one tag in one process. Not thread-safe: callers hold a lock."""

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
        self.seen: dict[Residue, int] = {}
        self.rate = 0.0
        self.stopped: AllocatorError | None = None
        self._left = self._spare = NOTHING
        self._length = self._piece = 0
        self._low = False
        self._size = 0
        self._used = 0
        self._measured_at: float | None = None

    def take(self) -> range:
        """The next piece to serve, after the last one was used up; empty when none is in memory."""
        self._used += self._piece
        self._piece = 0
        if not self._left:
            # The spare is cleared first: an interrupt here may lose the segment, and never serves it twice.
            spare, self._spare = self._spare, NOTHING
            self._left = spare
            self._length = len(self._left)
            self._low = False
            piece = self._cut(self._length // LOW_WATER)
            if piece:
                return piece
        self._low = True
        # `want` is asked after each piece: of half a retry pause, so that a failed claim is retried in time.
        a_while = min(max(int(self.rate * RETRY_PAUSE / 2), self._length // 200), self._length // LOW_WATER)
        return self._cut(max(a_while, MIN_PIECE))

    def _cut(self, size: int) -> range:
        piece, self._left = self._left[:size], self._left[size:]
        self._piece = len(piece)
        return piece

    @property
    def held(self) -> int:
        """The number of ids in memory, without the piece that is being served."""
        return len(self._left) + len(self._spare)

    def want(self, now: float) -> Claim | Wait | None:
        """The next step to get more ids: a `Claim`, which counts as under way from now on, a `Wait`, or None."""
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
        # The clock may not have advanced since the last claim: some tick only every 16 ms.
        self.rate = used / elapsed if elapsed > 0 else float(used) / 1e-6
        lasting = self.rate * self.runway * LOW_WATER / (LOW_WATER - 1)  # a tenth is used before the next claim
        self._size = max(self.step, int(min(lasting, self._size * GROWTH, self.max_step)))

    def block_size(self, count: int | None) -> int:
        """The size of a block for a client process that asks for `count` ids: at most that of our claims."""
        return min(count or self.step, max(self.step, self.max_step))

    def configure(self, step: int, max_step: int) -> None:
        """Apply the settings in the tag's row."""
        self.step, self.max_step = step, max_step

    def resize(self, claim: Claim) -> None:
        """Set the size of the first claim, which was decided before the settings were known."""
        if claim is self.pace.under_way and self._measured_at is None:
            claim.size = self._size = self.step

    def committed(self, claim: Claim, segment: range, now: float) -> None:
        """Record that the claim committed and owns `segment`. If the claim is no longer under way, burn the segment."""
        if not self.pace.succeeded(claim):
            return
        before = mark(claim.seen, residue_of(segment))
        if segment[0] <= before or is_outgrown(residue_of(segment), claim.seen):
            before = max(claim.seen.values(), default=before)
            self.stop(
                MaxValueWentBack(
                    f"ids from {segment[0]} were claimed, but {before} was issued before; raise the tag above every id "
                    "in use (allocator tags repair TAG --above N), then restart"
                )
            )
            return
        self._spare = segment
        self.record_seen(segment)
        if self._measured_at is None:
            self._measured_at = now

    def failed(self, claim: Claim, error: AllocatorError, now: float) -> None:
        """Record that the claim failed, or that its outcome is unknown."""
        if not self.pace.failed(claim, error, now):
            return
        if isinstance(error, MaxValueWentBack):
            self.stop(error)
        elif isinstance(error, UnknownTag):
            self.pace.clear()  # a mistake of the caller and no outage: the next call need not wait

    def refused(self, error: AllocatorError, now: float) -> None:
        """Record that a `reserve` failed: it shares the retry pace of the claims."""
        if isinstance(error, MaxValueWentBack):
            self.stop(error)
        elif isinstance(error, DatabaseUnavailable):
            self.pace.pause(error, now)

    def record_seen(self, segment: range) -> None:
        """Record the greatest id of a range from the database, served here or not."""
        residue = residue_of(segment)
        self.seen[residue] = max(self.seen.get(residue, 0), segment[-1])
        self.seen = without_the_outgrown(self.seen)

    def stop(self, error: MaxValueWentBack) -> None:
        """Stop the tag until a restart, and drop its ids: another process may have them too."""
        self.stopped = error
        self.pace.clear()
        self._left = self._spare = NOTHING
