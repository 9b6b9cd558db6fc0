"""A clock that cannot be set."""

from __future__ import annotations

import time

BOOT = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux's clock that runs on while the machine sleeps; the monotonic clock stands still then."""


def own_clock() -> float:
    """Seconds since some moment."""
    return time.monotonic() if BOOT is None else time.clock_gettime(BOOT)
