"""A rate limit by the generic cell rate algorithm, whose whole state is one number.

`full_at` is the time when the allowance will be full again. A request is admitted while less than `burst` seconds
of it are used.
"""

from __future__ import annotations


def pause(full_at: float, now: float, burst: float) -> float:
    """Seconds until the next request is admitted; 0 for now."""
    return max(0.0, full_at - now - burst)


def used(full_at: float, now: float, rate: float) -> float:
    """The new `full_at` after a request."""
    return max(full_at, now) + 1 / rate
