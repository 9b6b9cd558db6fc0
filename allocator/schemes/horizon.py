"""How long something lasts that is used up: from how much of it went in which time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

DAY = 86_400.0
WINDOW = DAY
"""Seconds over which a rate is measured: a night counts as much as a day."""


@dataclass(slots=True)
class Horizon:
    """One counter that has a limit; `now` is the caller's monotonic clock, in seconds."""

    first: int
    first_at: float
    last: int = 0
    last_at: float = 0.0

    def saw(self, value: int, now: float) -> None:
        if now - self.first_at > 2 * WINDOW:
            self.first, self.first_at = self.last, self.last_at
        if now - self.last_at > WINDOW or not self.last_at:
            self.last, self.last_at = value, now

    def days_left(self, value: int, limit: int, now: float) -> float:
        """Infinite while nothing is used."""
        used, seconds = value - self.first, now - self.first_at
        return (limit - value) * seconds / used / DAY if used > 0 and seconds > 0 else inf
