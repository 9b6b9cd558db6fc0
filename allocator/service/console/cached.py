"""What is read from the databases, kept for a while: however many pages ask, there is one question at a time.

While the databases are away, what was read last stays, with its age and the reason.
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
PAUSE = 1.0
"""Seconds after a failure before the databases are asked again."""


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """`value` is None while nothing was read yet; `age` is in seconds; `error` says why it is not newer."""

    value: T | None
    age: float
    error: AllocatorError | None
    is_coming: bool


class Cached(Generic[T]):
    """`load` is asked at most each `lasts` seconds. Used by one event loop."""

    def __init__(self, load: Callable[[], Awaitable[T]], lasts: float, clock: Callable[[], float] = monotonic) -> None:
        self._load = load
        self._lasts = lasts
        self._clock = clock
        self._value: T | None = None
        self._read_at = self._tried_at = -float("inf")
        self._changes = self._seen = 0
        self.failure: AllocatorError | None = None
        self._failed_at = -float("inf")
        self._task: asyncio.Task[None] | None = None

    async def get(self, patience: float = PATIENCE, within: float | None = None) -> Held[T]:
        """What is known, not older than `within` seconds if that can be had within `patience`.

        While the databases fail nobody waits for them, but for the next try to begin.
        """
        now, most = self._clock(), self._lasts if within is None else within
        is_old = self._changes != self._seen or now - self._read_at >= most
        is_due = is_old and now - self._tried_at >= PAUSE
        if self._task is None and is_due:
            self._tried_at = now
            self._task = asyncio.create_task(self._read())
        if self._task is not None:
            await asyncio.wait([self._task], timeout=0.0 if self.failure and self._value is not None else patience)
        return Held(self._value, self._clock() - self._read_at, self.failure, self._task is not None)

    def forget(self) -> None:
        """It was changed: the next who asks reads it anew. What was read stays, with its age, until that is done."""
        self._changes += 1
        self._tried_at = -float("inf")

    def failing(self, within: float) -> AllocatorError | None:
        """Why it could not be read, if that was tried within so many seconds: an older failure says nothing."""
        return self.failure if self._clock() - self._failed_at < within else None

    async def _read(self) -> None:
        began, changes = self._clock(), self._changes
        try:
            self._value = await self._load()
            self._read_at, self._seen, self.failure = began, changes, None
        except AllocatorError as error:
            self._fail(error)
        except Exception as error:  # as when the system has no more threads: a page says so and goes on
            self._fail(DatabaseUnavailable(f"{type(error).__name__}: {error}"))
        finally:
            self._task = None

    def _fail(self, error: AllocatorError) -> None:
        self.failure, self._failed_at = error, self._clock()
