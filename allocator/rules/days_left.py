"""How long something lasts that is used up: from how much of it went in which time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

DAY = 86_400.0
WINDOW = DAY
"""Seconds over which a rate is measured: a night counts as much as a day."""
AT_LEAST = 3600.0
"""Seconds before which a rate says nothing."""
JUMP = 10**8
"""So many a second are not drawn: somebody has raised the counter."""


@dataclass(slots=True)
class Horizon:
    """One counter that has a limit; `now` is the caller's monotonic clock, in seconds."""

    first: int
    first_at: float
    last: int = 0
    last_at: float = 0.0
    seen: int = 0
    seen_at: float = 0.0

    def saw(self, value: int, now: float) -> None:
        before, before_at = (self.seen, self.seen_at) if self.seen_at else (self.first, self.first_at)
        if value - before > JUMP * max(1.0, now - before_at):
            self.first += value - before
            self.last += value - before
        self.seen, self.seen_at = value, now
        if now - self.first_at > 2 * WINDOW:
            self.first, self.first_at = self.last, self.last_at
        if now - self.last_at > WINDOW or not self.last_at:
            self.last, self.last_at = value, now

    def days_left(self, value: int, limit: int, now: float) -> float:
        """Infinite while nothing is used, and at first."""
        used, seconds = value - self.first, now - self.first_at
        return (limit - value) * seconds / used / DAY if used > 0 and seconds >= AT_LEAST else inf
