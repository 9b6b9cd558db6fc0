"""The rate limit of one process, and a queue for expensive work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from allocator.service.error_responses import Busy

T = TypeVar("T")

MAX_WAITING = 16
"""Work runs one at a time: the last of 16 waits for all others, and up to 3 seconds for their pauses."""
PAUSE_FACTOR = 3
"""Length of the pause after work, in times of the work: the work takes at most a quarter of one core."""
MAX_PAUSE = 0.2
"""Seconds. Long work mostly waits for a database and uses no core."""


class RateLimit:
    """A rate limit per second, without a lock; `burst` seconds of it may be used at once.

    By the generic cell rate algorithm: its whole state is the time when the allowance will be full again.
    """

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._full_at = 0.0

    def wait(self, now: float) -> float:
        """Seconds to wait before the next use; 0 for now."""
        return max(0.0, self._full_at - now - self._burst)

    def use(self, now: float) -> None:
        self._full_at = max(self._full_at, now) + 1 / self._rate


class ReadQueue:
    """Runs expensive reads one at a time, with pauses for the requests for ids. Used by one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._next_at = 0.0

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work and return its result. Raises `Busy` if too many wait."""
        if self._waiting >= MAX_WAITING:
            raise Busy(f"{MAX_WAITING} requests already wait for {self._name}; retry")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            await asyncio.sleep(self._next_at - monotonic())
            began = monotonic()
            try:
                return await work()
            finally:
                now = monotonic()
                self._next_at = now + min(PAUSE_FACTOR * (now - began), MAX_PAUSE)
        finally:
            self._lock.release()
