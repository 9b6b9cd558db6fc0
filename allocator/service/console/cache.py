"""A cache for results of the databases: however many pages need one, one task loads it at a time.

While the databases are away, pages get the last value with its age and the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from allocator.errors import AllocatorError, DatabaseUnavailable

T = TypeVar("T")

MAX_WAIT = 2.0
"""Seconds that a page waits for the databases; then it shows the last value, if there is one."""
RETRY_AFTER = 1.0
"""Seconds that pass at least between two attempts to load, however many pages ask."""


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """A value, None before the first success; its age in seconds; and the error of the last attempt."""

    value: T | None
    age: float
    error: AllocatorError | None
    is_loading: bool


class Cache(Generic[T]):
    """Calls `load` at most every `lifetime` seconds. Used by one event loop."""

    def __init__(
        self, load: Callable[[], Awaitable[T]], lifetime: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._load = load
        self._lifetime = lifetime
        self._clock = clock
        self._value: T | None = None
        self._loaded_at = self._tried_at = self._failed_at = -float("inf")
        self._failure: AllocatorError | None = None
        self._task: asyncio.Task[None] | None = None

    async def get(self, max_wait: float = MAX_WAIT) -> Cached[T]:
        """Get the value, as new as it must be if it loads within `max_wait` seconds.

        After a failure, callers get the old value at once while a new attempt runs.
        """
        now = self._clock()
        is_old = now - self._loaded_at >= self._lifetime
        if self._task is None and is_old and now - self._tried_at >= RETRY_AFTER:
            self._tried_at = now
            self._task = asyncio.create_task(self._read())
        if self._task is not None:
            await asyncio.wait([self._task], timeout=0.0 if self._failure and self._value is not None else max_wait)
        return Cached(self._value, self._clock() - self._loaded_at, self._failure, self._task is not None)

    def recent_failure(self, seconds: float) -> AllocatorError | None:
        """The failure of an attempt in the last `seconds`."""
        return self._failure if self._clock() - self._failed_at < seconds else None

    async def _read(self) -> None:
        began = self._clock()
        try:
            self._value = await self._load()
            self._loaded_at, self._failure = began, None
        except AllocatorError as error:
            self._fail(error)
        except Exception as error:  # such as no free thread: the page shows it
            self._fail(DatabaseUnavailable(f"{type(error).__name__}: {error}"))
        finally:
            self._task = None

    def _fail(self, error: AllocatorError) -> None:
        self._failure, self._failed_at = error, self._clock()
