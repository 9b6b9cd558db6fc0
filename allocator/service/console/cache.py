"""Answers of the databases, kept for a while: however many pages ask, there is one question at a time.

While the databases are away, the last answer stays, with its age and the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from allocator.errors import AllocatorError, DatabaseUnavailable

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds that a page waits for the databases."""
RETRY_AFTER = 1.0
"""Seconds after a failure."""


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """`value` is None until the first answer; `age` is in seconds; `error` says why it is not newer."""

    value: T | None
    age: float
    error: AllocatorError | None
    is_loading: bool


class Cache(Generic[T]):
    """`load` is called at most each `lifetime` seconds. Used by one event loop."""

    def __init__(
        self, load: Callable[[], Awaitable[T]], lifetime: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._load = load
        self._lifetime = lifetime
        self._clock = clock
        self._value: T | None = None
        self._loaded_at = self._tried_at = self._failed_at = -float("inf")
        self._changes = self._changes_loaded = 0
        self._failure: AllocatorError | None = None
        self._task: asyncio.Task[None] | None = None

    async def get(self, patience: float = PATIENCE, lifetime: float | None = None) -> Cached[T]:
        """The value, newer than `lifetime` seconds if that can be had within `patience`.

        While the databases fail nobody waits for them, except for the next try to begin.
        """
        now, most = self._clock(), self._lifetime if lifetime is None else lifetime
        is_old = self._changes != self._changes_loaded or now - self._loaded_at >= most
        if self._task is None and is_old and now - self._tried_at >= RETRY_AFTER:
            self._tried_at = now
            self._task = asyncio.create_task(self._read())
        if self._task is not None:
            await asyncio.wait([self._task], timeout=0.0 if self._failure and self._value is not None else patience)
        return Cached(self._value, self._clock() - self._loaded_at, self._failure, self._task is not None)

    def invalidate(self) -> None:
        """It was changed: the next caller loads it again. Until then the old value stays, with its age."""
        self._changes += 1
        self._tried_at = -float("inf")

    def recent_failure(self, seconds: float) -> AllocatorError | None:
        """Of a try within so many seconds: an older one says nothing."""
        return self._failure if self._clock() - self._failed_at < seconds else None

    async def _read(self) -> None:
        began, changes = self._clock(), self._changes
        try:
            self._value = await self._load()
            self._loaded_at, self._changes_loaded, self._failure = began, changes, None
        except AllocatorError as error:
            self._fail(error)
        except Exception as error:  # as when the system has no more threads: a page says so and goes on
            self._fail(DatabaseUnavailable(f"{type(error).__name__}: {error}"))
        finally:
            self._task = None

    def _fail(self, error: AllocatorError) -> None:
        self._failure, self._failed_at = error, self._clock()
