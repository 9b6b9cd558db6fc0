"""The sources of ids of the hot routes, one per tag and scheme."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from allocator.errors import InvalidCount
from allocator.generators.objectid import ObjectId
from allocator.service_allocator import ServiceAllocator

METEOR, SNOWFLAKE, OBJECTID = "meteor", "snowflake", "objectid"

MAX_COUNT = 1000
"""Ids of one answer: while it is made, no other request is answered. Who needs more takes a segment."""


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
        """Draw 1 to `MAX_COUNT` ids, or none."""
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
        ids = '","'.join(map(str, await self.take(count)))
        return b'%b%b"]}' % (self._before, ids.encode())


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
    """As text, among which Python does not look for garbage."""
    return [str(ObjectId()) for _ in range(count)]
