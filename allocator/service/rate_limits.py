"""A rate, as one worker counts it; and costly work, which waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from allocator.rules.rate_bucket import BURST, pause, used
from allocator.service.problems import Busy

T = TypeVar("T")

MOST_WAITING = 16
PAUSES = 3
"""How much longer than the work the pause after it is: the work takes a quarter of one core at most."""
LONGEST_PAUSE = 0.2
"""Seconds; work that waits for a database takes no core."""


class Rate:
    """So many a second, of which `burst` seconds may be used at once; nobody waits for a lock."""

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate: float, burst: float = BURST) -> None:
        self._rate, self._burst = rate, burst
        self._full_at = 0.0

    def wait(self) -> float:
        """For how many seconds to wait before using it."""
        return pause(self._full_at, monotonic(), self._burst)

    def use(self, cost: int = 1) -> None:
        """What is more than the rate is paid for by waiting, afterwards."""
        self._full_at = used(self._full_at, monotonic(), cost, self._rate)


class Gate:
    """Costly work of readers, one at a time and with pauses, so that ids come meanwhile. Used by one event loop."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._next_at = 0.0

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """What the work brings; raises `Busy` where too many wait for theirs."""
        if self._waiting >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} requests wait for {self._what} already; try again")
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
                self._next_at = now + min(PAUSES * (now - began), LONGEST_PAUSE)
        finally:
            self._lock.release()
