"""The sources of ids of the hot routes, one per tag and scheme."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from allocator.errors import InvalidCount
from allocator.generators.objectid import ObjectId
from allocator.schemes.shared.argument_checks import check_count
from allocator.service_allocator import ServiceAllocator

METEOR, SNOWFLAKE, OBJECTID = "meteor", "snowflake", "objectid"


PART = 250
"""Ids that are made or encoded at once: 10,000 ObjectIds take 20 ms, for which no other request would be answered."""
PAUSE = 0.001
"""Seconds between two parts. Without a pause the event loop keeps the interpreter, for which the threads that talk to
the database then wait 5 ms, several times a claim."""
large_answers = asyncio.Lock()
"""Larger answers are made one at a time, else their parts would delay others together. Nobody waits in it for ids."""


def nothing() -> None:
    """No id is in memory."""


class Source:
    """Ids of one tag or scheme, encoded as JSON.

    next_ids: draws several ids.
    buffered: takes one id from memory, or None.
    given: ids issued so far, for the metrics.
    """

    __slots__ = ("_before", "_buffered", "_next_ids", "given", "scheme", "tag")

    def __init__(
        self,
        scheme: str,
        next_ids: Callable[[int], Awaitable[list[Any]]],
        buffered: Callable[[], int | None] = nothing,
        tag: str = "",
    ) -> None:
        self.scheme, self.tag = scheme, tag
        self.given = 0
        self._next_ids, self._buffered = next_ids, buffered
        self._before = f'{{"tag":"{tag}","ids":["'.encode() if tag else b'{"ids":["'

    async def take(self, count: int) -> list[Any]:
        """Draw 1 to 10000 ids, or none."""
        return await self.take_any(check_count(count))

    async def take_any(self, count: int) -> list[Any]:
        """Draw any number of ids, or none."""
        ids = await self._next_ids(count)
        self.given += count
        return ids

    def single(self) -> bytes | None:
        """One id from memory as JSON; None if that is impossible without waiting."""
        if (number := self._buffered()) is None:
            return None
        self.given += 1
        return b'%b%d"]}' % (self._before, number)

    async def answer(self, count: int) -> bytes:
        """Draw ids as JSON. They hold no character that needs an escape."""
        ids = await self.take(count)
        if count <= PART:
            return b'%b%b"]}' % (self._before, encoded(ids))
        async with large_answers:
            parts = [encoded(ids[at : at + PART]) async for at in in_parts(count)]
        return b'%b%b"]}' % (self._before, b'","'.join(parts))


def encoded(ids: list[Any]) -> bytes:
    return '","'.join(map(str, ids)).encode()


async def in_parts(count: int) -> AsyncIterator[int]:
    """The beginnings of all parts; between two of them the event loop answers other requests, and threads run."""
    for at in range(0, count, PART):
        if at:
            await asyncio.sleep(PAUSE)
        yield at


class TagSource(Source):
    """The ids of a tag. `rate` is the recent number per second, `counted` the number already in the rate."""

    __slots__ = ("_ids", "buffer", "counted", "rate")

    def __init__(self, ids: ServiceAllocator, tag: str) -> None:
        self.buffer = ids.buffer(tag)
        super().__init__("segment", self._draw, self.buffer.next, tag)
        self._ids = ids
        self.counted, self.rate = 0, 0.0

    async def _draw(self, count: int) -> list[int]:
        """Both the check and the draw within one timeout."""
        end = self._ids.deadline()
        await self._check_remaining(count)
        return await self.buffer.several(count, end)

    async def _check_remaining(self, count: int) -> None:
        """Raise an error if fewer ids remain, before any of them is drawn and lost.

        Before a batch larger than memory, read from the database how many ids remain.
        """
        if count == 1 or (held := self.buffer.count()) >= count:
            return
        left = held + (await self._ids.tags.get(self.tag)).remaining
        if 0 < left < count:
            raise InvalidCount(f"count must be at most {left}, the ids left of tag {self.tag!r}, got {count}")


class Sources:
    """All sources of this process: one per scheme, and one per tag in use."""

    def __init__(self, ids: ServiceAllocator) -> None:
        self.meteor = Source(METEOR, ids.meteors.several, ids.meteors.next)
        self.snowflake = Source(SNOWFLAKE, ids.snowflakes.several, ids.snowflakes.next)
        self.objectid = Source(OBJECTID, object_ids)
        self.tags: dict[str, TagSource] = {}

    def all(self) -> list[Source]:
        return [self.meteor, self.snowflake, self.objectid, *self.tags.values()]


async def object_ids(count: int) -> list[str]:
    """As text: of so many objects Python would look through all of memory for garbage, 100 ms at a time."""
    if count <= PART:
        return [str(ObjectId()) for _ in range(count)]
    async with large_answers:
        return [str(ObjectId()) async for at in in_parts(count) for _ in range(min(PART, count - at))]
