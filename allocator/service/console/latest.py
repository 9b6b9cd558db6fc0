"""What the databases say, read once for all viewers of a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from allocator.database.store import Database
from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.fleet.tag_administration import ask, together
from allocator.runtime.threads import Background, result_async
from allocator.schemes.tag import Tag

T = TypeVar("T")

MAX_WAIT = 2.0
"""Seconds that a page waits for a result."""
REST = 4
"""A read that took a second is followed by this many without one: 10,000 tags take half a second of the processor."""
MAX_TAGS = 10_000
"""Tags that are read, by name; there may be millions."""


class Latest(Generic[T]):
    """The last result of a blocking `read`. It runs while pages ask for it, at most every few seconds, and once at a
    time, however many ask. Used by one event loop.

    value: None until the first success. error: of the last attempt, if it failed. reads: attempts so far.
    """

    def __init__(self, background: Background, read: Callable[[], T], seconds: float) -> None:
        self._background, self._call, self._seconds = background, read, seconds
        self._task: asyncio.Task[None] | None = None
        self._due = 0.0
        self._is_overdue = False
        """Nobody asked when the read under way was due: its value, or its error, is from before that."""
        self.value: T | None = None
        self._read_at = -inf
        self.error: AllocatorError | None = None
        self.reads = 0

    @property
    def age(self) -> float:
        """Seconds since the value was read."""
        return monotonic() - self._read_at

    async def ask(self) -> None:
        """Read again if it is time to. Waits for a first result, or in place of an old one; while reads fail, only if
        nobody asked for a time."""
        if self._task is None and (late := monotonic() - self._due) >= 0:
            self._is_overdue = late > 2 * self._seconds
            self._task = asyncio.create_task(self._read())
        if self._task is not None and (self._is_overdue or (self.error is None and self.age > 2 * self._seconds)):
            await asyncio.wait([self._task], timeout=MAX_WAIT)

    async def _read(self) -> None:
        began = monotonic()
        try:
            # On threads of the console, so that no claim waits for one, and the process can end.
            self.value = await result_async(self._background.submit(self._call))
            self._read_at, self.error = began, None
        except Exception as error:  # such as no free thread: the page shows it
            said = f"{type(error).__name__}: {error}"
            self.error = error if isinstance(error, AllocatorError) else DatabaseUnavailable(said)
        self._due = monotonic() + max(self._seconds, REST * (monotonic() - began))
        self._task = None
        self.reads += 1


class TagsRead(NamedTuple):
    """The tags of the databases that answered, by name, the others' numbers, and how many there are in all."""

    tags: dict[str, Tag]
    away: list[int]
    shards: int


def read_tags(databases: Sequence[Database]) -> TagsRead:
    """Read the tags. Raises the error of the first database if none answers."""
    found, errors = ask(databases, lambda database: database.fetch_page("", MAX_TAGS))
    tags = together(found.values())[:MAX_TAGS]
    away = [number for number, database in enumerate(databases, 1) if database in errors]
    return TagsRead({tag.name: tag for tag in tags}, away, len(databases))
