"""The rate limit of one process, and a queue for expensive work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from allocator.service.error_responses import Busy

T = TypeVar("T")

MAX_WAITING = 16
"""Work runs one at a time: the last of 16 waits for all others."""


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
    """Runs expensive reads one at a time. Used by one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._inside = 0

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work and return its result. Raises `Busy` if too many wait."""
        if self._inside > MAX_WAITING:
            raise Busy(f"{MAX_WAITING} requests already wait for {self._name}; retry")
        self._inside += 1
        try:
            async with self._lock:
                return await work()
        finally:
            self._inside -= 1
