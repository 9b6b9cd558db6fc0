"""A wall clock that tests move."""

NOW = 1_790_000_000.0
"""Seconds since 1970, at which the clock stands at first."""


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Return at once, a microsecond late by this clock."""
        self.now += seconds + 1e-6
