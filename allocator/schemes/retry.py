"""The pace of requests to the database: one under way at a time, and after one that failed at most one a second.

A rule of the core and not of its callers: however many they are and however often they ask, an outage costs the
database one request a second for each thing asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from allocator.errors import AllocatorError

RETRY_PAUSE = 1.0
"""Seconds from the beginning of a request that failed to the next. One that hung for longer is followed at once: while
a server is frozen there is hardly a moment without a request that it could answer as soon as it is back."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for so many seconds; because of a failure, if there is one."""

    seconds: float
    error: AllocatorError | None = None


class Pace(Generic[R]):
    """`now` is the caller's monotonic clock, in seconds. Callers hold a lock."""

    __slots__ = ("_begun_at", "_failed_at", "_failure", "_lost_after", "_retry_at", "under_way")

    def __init__(self, lost_after: float) -> None:
        self._lost_after = lost_after
        self.under_way: R | None = None
        self._begun_at = self._failed_at = self._retry_at = 0.0
        self._failure: AllocatorError | None = None

    @property
    def failing(self) -> bool:
        return self._failure is not None

    def trouble(self, now: float, within: float = 2 * RETRY_PAUSE) -> AllocatorError | None:
        """Why the last request failed, unless nobody has asked since for so long that it says nothing any more."""
        return self._failure if now < self._failed_at + within else None

    def busy(self, now: float) -> bool:
        """A request is under way; one that has not ended for very long is given up, its thread must be gone."""
        return self.under_way is not None and now - self._begun_at < self._lost_after

    def wait(self, now: float) -> Wait | None:
        if self._failure is not None and now < self._retry_at:
            return Wait(self._retry_at - now, self._failure)
        return None

    def begin(self, request: R, now: float) -> R:
        self.under_way, self._begun_at = request, now
        return request

    def succeeded(self, request: R) -> bool:
        """Whether it was the one under way; what any other one brings comes too late, and is burnt."""
        if request is not self.under_way:
            return False
        self.under_way = self._failure = None
        return True

    def failed(self, request: R, error: AllocatorError, now: float) -> bool:
        """As `succeeded`, and the next request waits."""
        if request is not self.under_way:
            return False
        self.under_way = None
        self.pause(error, now, self._begun_at)
        return True

    def withdraw(self, request: R) -> bool:
        """As `succeeded`; it was not made, or what it brings is burnt, and the next one may begin at once."""
        if request is not self.under_way:
            return False
        self.under_way = None
        return True

    def pause(self, error: AllocatorError, now: float, begun_at: float | None = None) -> None:
        self._failure, self._failed_at = error, now
        self._retry_at = max(now, (now if begun_at is None else begun_at) + RETRY_PAUSE)

    def clear(self) -> None:
        self.under_way = self._failure = None
