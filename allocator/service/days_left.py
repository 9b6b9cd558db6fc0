"""Estimate when a counter reaches its limit, from its recent rate."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

DAY = 86_400.0
WINDOW = DAY
"""Seconds over which the rate is measured: a whole day, so that quiet nights count."""
AT_LEAST = 3600.0
"""Seconds of observation before an estimate; until then it is infinite."""
JUMP = 10**8
"""Ids a second; a faster rise means that somebody raised the counter."""


@dataclass(slots=True)
class Horizon:
    """The recent values of one counter. `now` is the caller's monotonic clock, in seconds."""

    first: int
    first_at: float
    last: int = 0
    last_at: float = 0.0
    seen: int = 0
    seen_at: float = 0.0

    def record(self, value: int, now: float) -> None:
        before, before_at = (self.seen, self.seen_at) if self.seen_at else (self.first, self.first_at)
        if value - before > JUMP * max(1.0, now - before_at):
            # Raised by hand, not used: the window moves along, so that the rate does not count it.
            self.first += value - before
            self.last += value - before
        self.seen, self.seen_at = value, now
        if now - self.first_at > 2 * WINDOW:
            self.first, self.first_at = self.last, self.last_at
        if now - self.last_at > WINDOW or not self.last_at:
            self.last, self.last_at = value, now

    def days_left(self, value: int, limit: int, now: float) -> float:
        """Days until `limit` at the recent rate; infinite before the first hour, and while the counter stands still."""
        used, seconds = value - self.first, now - self.first_at
        return (limit - value) * seconds / used / DAY if used > 0 and seconds >= AT_LEAST else inf
