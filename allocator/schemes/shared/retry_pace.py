"""The pace of requests to the database: one at a time, and after a failure at most one a second.

The core limits the pace, not its callers: in an outage the database gets one request a second for each tag or
generator, however many threads call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from allocator.errors import AllocatorError, ClockWentBack

RETRY_PAUSE = 1.0
"""Seconds from the start of a failed request to the next. After a request that hung for longer, the next starts at
once: so a frozen server nearly always has a request to answer when it recovers."""

STANDS_STILL = 1.0
"""Seconds of pauses after which a clock that has not moved is one that somebody has stopped."""

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for `seconds`; after a failure, `error` is its reason."""

    seconds: float
    error: AllocatorError | None = None


def found_by(
    attempt: Callable[[], T | Wait],
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    least: float = 0.0,
    most: float = inf,
) -> T:
    """Repeat `attempt` until it finds something. Each pause that it asks for is `least` to `most` seconds.

    Raises `ClockWentBack` if the clock stands still during the pauses: a test may have stopped it.
    """
    seen, slept = -inf, 0.0
    while isinstance(found := attempt(), Wait):
        pause = min(max(least, found.seconds), most)
        if (now := clock()) != seen:
            seen, slept = now, 0.0
        elif slept >= STANDS_STILL:
            raise ClockWentBack(
                f"the clock has stood still at {now:.3f} seconds since 1970, and the next id needs its next tick; a "
                "test that freezes the time must let it run (time_machine and freezegun: tick=True)"
            )
        else:
            pause = max(pause, 0.001)
        sleep(pause)
        slept += pause
    return found


class Pace(Generic[R]):
    """Retry pace of one tag or generator. `now` is the caller's monotonic clock, in seconds. Callers hold a lock."""

    def __init__(self, lost_after: float) -> None:
        self._lost_after = lost_after
        self.under_way: R | None = None
        self._begun_at = self._failed_at = self._retry_at = 0.0
        self._failure: AllocatorError | None = None

    @property
    def failing(self) -> bool:
        return self._failure is not None

    def trouble(self, now: float, within: float = 2 * RETRY_PAUSE) -> AllocatorError | None:
        """The error of the last request, if it failed less than `within` seconds ago; None otherwise."""
        return self._failure if now < self._failed_at + within else None

    def busy(self, now: float) -> bool:
        """Whether a request is under way. One older than `lost_after` seconds is given up: its thread must be gone."""
        return self.under_way is not None and now - self._begun_at < self._lost_after

    def wait(self, now: float) -> Wait | None:
        if self._failure is not None and now < self._retry_at:
            return Wait(self._retry_at - now, self._failure)
        return None

    def begin(self, request: R, now: float) -> R:
        self.under_way, self._begun_at = request, now
        return request

    def succeeded(self, request: R) -> bool:
        """Whether `request` was the one under way. The result of any other came too late, and is burnt."""
        if request is not self.under_way:
            return False
        self.under_way = self._failure = None
        return True

    def failed(self, request: R, error: AllocatorError, now: float) -> bool:
        """As `succeeded`; the next request waits."""
        if request is not self.under_way:
            return False
        self.under_way = None
        self.pause(error, now, self._begun_at)
        return True

    def withdraw(self) -> None:
        """Burn the result of the request under way, if it is made at all; the next may begin at once."""
        self.under_way = None

    def pause(self, error: AllocatorError, now: float, begun_at: float | None = None) -> None:
        self._failure, self._failed_at = error, now
        self._retry_at = max(now, (now if begun_at is None else begun_at) + RETRY_PAUSE)

    def clear(self) -> None:
        self.under_way = self._failure = None
