"""A limit of so many a second: the generic cell rate algorithm, of which one number is the whole state.

`full_at` is when the allowance will be full again. Whoever asks is let in while less than `BURST` seconds of it are
used, and what is asked for is used up as a whole: a request that is larger than the burst is paid for afterwards.
"""

from __future__ import annotations

BURST = 1.0


def pause(full_at: float, now: float, burst: float = BURST) -> float:
    """For how many seconds to wait before asking again; 0 when let in."""
    return max(0.0, full_at - now - burst)


def used(full_at: float, now: float, cost: float, rate: float) -> float:
    """When the allowance is full again, after `cost` of it was used."""
    return max(full_at, now) + cost / rate
