"""Tags and ticket types that are made by their first use, up to a number that the database counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from allocator.database.verbs import tickets
from allocator.errors import AllocatorError, DatabaseUnavailable, UnknownTag
from allocator.fleet.fleet import Fleet

T = TypeVar("T")


class Newcomers:
    """Makes one at a time, so that requests which arrive together cannot exceed `most` between the count and the use.

    Each worker of a service has its own, so that there may be as many more as there are other workers.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self._seconds = seconds
        self._lock = asyncio.Lock()

    async def make(
        self, what: str, name: str, count: Callable[[], Awaitable[int | None]], make: Callable[[], Awaitable[T]]
    ) -> T:
        """What `make` brings; `count` says how many there are, or None where this one exists by now."""
        try:
            await asyncio.wait_for(self._lock.acquire(), self._seconds)
        except TimeoutError:
            raise DatabaseUnavailable(f"{what} {name!r} is not made yet: others are made first") from None
        try:
            number = await count()
            if number is not None and number >= self.most:
                raise UnknownTag(
                    f"{what} {name!r} does not exist, and is not made, since there are {self.most} {what}s already"
                )
            return await make()
        finally:
            self._lock.release()


def ticket_types(databases: Fleet, kind: str) -> int | None:
    """How many types have tickets, of shards in the one that has most; None where this one does. Blocking."""
    databases.open()
    found: list[int] = []
    error: AllocatorError | None = None
    for database, trouble in zip(databases.databases(), databases.troubles(), strict=False):
        try:
            if trouble is not None:
                raise trouble.again()
            number = database.run(tickets.count_types, kind)
        except AllocatorError as its_own:
            error = its_own
            continue
        if number is None:
            return None
        found.append(number)
    if error is not None and not found:
        raise error
    return max(found)
