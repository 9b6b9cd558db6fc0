"""A rate limit by the generic cell rate algorithm, whose whole state is one number.

`full_at` is the time when the allowance will be full again. A request is admitted while less than `BURST` seconds of
it are used, and its whole cost is charged: after a request larger than the burst, later requests wait.
"""

from __future__ import annotations

BURST = 1.0


def pause(full_at: float, now: float, burst: float = BURST) -> float:
    """Seconds until the next request is admitted; 0 for now."""
    return max(0.0, full_at - now - burst)


def used(full_at: float, now: float, cost: float, rate: float) -> float:
    """The new `full_at` after a request of `cost`."""
    return max(full_at, now) + cost / rate
