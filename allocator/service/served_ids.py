"""What the service serves: the sources of ids of the hot routes, one per tag and scheme, and the tags."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from allocator.errors import InvalidCount, TagExists
from allocator.generators.objectid import several
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.service.error_responses import HttpRefusal
from allocator.service.log_config import Caller
from allocator.service_allocator import ServiceAllocator

log = logging.getLogger("allocator.service")

METEOR, SNOWFLAKE, OBJECTID = "meteor", "snowflake", "objectid"

T = TypeVar("T")
PageReader = Callable[[str, int], list[Tag]]
"""Takes a name and a limit; returns the tags after the name, at most that many."""

MAX_PAGE = 1000
"""The most tags in one query; a client asks for the next page after the last name."""

SEGMENT = 1000
"""Ids of a segment, unless its client asks for another size."""
MAX_COUNT = 1000
"""Ids of one answer: while it is made, no other request is answered. Who needs more takes a segment."""


class Source:
    """Ids of one tag or scheme, encoded as JSON.

    next_ids: draws several ids.
    buffered: takes one id from memory, or None.
    form: of an id, which holds no character that needs an escape.
    given: ids issued so far, for the metrics.
    """

    __slots__ = ("_before", "_buffered", "_form", "_next_ids", "given", "scheme", "tag")

    def __init__(
        self,
        scheme: str,
        next_ids: Callable[[int], Awaitable[list[Any]]],
        buffered: Callable[[], int | None] = lambda: None,
        tag: str = "",
        form: bytes = b"%d",
    ) -> None:
        self.scheme, self.tag, self._form = scheme, tag, form
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
        """Draw ids as JSON: formatted at once, in half the time that `str` of each takes."""
        ids = await self.take(count)
        return (b"%b" + b'","'.join([self._form] * count) + b'"]}') % (self._before, *ids)


class TagSource(Source):
    """The ids of a tag. `rate` is the recent number per second, `counted` the number already in the rate."""

    __slots__ = ("_ids", "counted", "rate", "supply")

    def __init__(self, ids: ServiceAllocator, tag: str) -> None:
        self.supply = ids.supply(tag)
        super().__init__("segment", self._draw, self.supply.at_hand, tag)
        self._ids = ids
        self.counted, self.rate = 0, 0.0

    async def _draw(self, count: int) -> list[int]:
        """Ask the database first, before a batch that memory does not hold: one that cannot be had, in an outage or
        at the tag's limit, must not use up what others can still have."""
        end = self._ids.deadline()
        if count > 1 and count > (held := self.supply.held()):
            left = held + (await self._ids.tags.get(self.tag)).remaining
            if 0 < left < count:
                raise InvalidCount(f"count must be at most {left}, the ids left of tag {self.tag!r}, got {count}")
        return await self.supply.several(count, end)


class Sources:
    """All sources of this process: one per scheme, and one per tag in use."""

    def __init__(self, ids: ServiceAllocator) -> None:
        self.meteor = Source(METEOR, ids.meteors.several, ids.meteors.at_hand)
        self.snowflake = Source(SNOWFLAKE, ids.snowflakes.several, ids.snowflakes.at_hand)
        self.objectid = Source(OBJECTID, object_ids, form=b"%b")
        self.tags: dict[str, TagSource] = {}

    def all(self) -> list[Source]:
        return [self.meteor, self.snowflake, self.objectid, *self.tags.values()]


async def object_ids(count: int) -> list[bytes]:
    return [one.hex().encode() for one in several(count)]


class ServedTags:
    def __init__(self, ids: ServiceAllocator, sources: Sources) -> None:
        self._ids = ids
        self._sources = sources
        self._turn = asyncio.Lock()
        self.deadline = ids.deadline
        self.blocks: dict[str, int] = {}
        """Ids in segments by tag, for the metrics. A segment counts as a whole when it is sent."""

    async def source(self, tag: str, create: bool = False) -> TagSource:
        """The source of a tag; make a missing tag if `create`. Raises `InvalidTag` or `UnknownTag`."""
        name = check_tag(tag)
        if name not in self._sources.tags:
            await self._ids.open_tag(name, create)  # before a name that may be made up takes memory
            self._sources.tags.setdefault(name, TagSource(self._ids, name))
        return self._sources.tags[name]

    async def claim(self, tag: str, size: int, seen: Seen, *, exact: bool, create: bool = False) -> range:
        """Claim a segment for a client, above all ids that the client or this process has seen."""
        await self.source(tag, create)
        segment = await self._ids.claim(tag, size, seen, exact)
        self.blocks[tag] = self.blocks.get(tag, 0) + len(segment)
        return segment

    async def read(self, work: Callable[[PageReader], T]) -> T:
        """Run a read of many tags on a thread, one at a time."""
        async with self._turn:
            return await self._ids.run(work, self._ids.page_of_tags)

    async def get(self, tag: str) -> Tag:
        return await self._ids.tags.get(tag)

    async def put(self, tag: str, form: dict[str, Any], caller: Caller, *, new: bool, old: bool) -> tuple[Tag, bool]:
        """Create or change a tag; with `new` only create it, with `old` only change it. Logs the caller.

        Returns the tag, and whether it was created.
        """
        result, created = await self._put(tag, form, new=new, old=old)
        change = "created" if created else "changed"
        settings = ", ".join(f"{name}={value}" for name, value in form.items()) or "default settings"
        about = {"tag": tag, "change": change, "caller": caller.address, "token": caller.token}
        log.info("tag %r was %s by %s: %s", tag, change, caller, settings, extra=about)
        return result, created

    async def _put(self, tag: str, form: dict[str, Any], *, new: bool, old: bool) -> tuple[Tag, bool]:
        if new and old:
            raise HttpRefusal(400, "If-Match and If-None-Match exclude each other")
        if not old:
            try:
                return await self._ids.tags.create(tag, **form), True
            except TagExists:
                if new:
                    raise
        return await self._ids.tags.set(tag, **form), False


def page_of(pages: PageReader, after: str, limit: int, sees: Callable[[str], bool]) -> list[Tag]:
    """The first `limit` tags after this one that a caller `sees`. Blocking."""
    page: list[Tag] = []
    most = limit
    while True:
        rows = pages(after, most)
        page += [tag for tag in rows if sees(tag.name)]
        if len(page) >= limit or len(rows) < most:
            return page[:limit]
        # A caller that sees few tags needs many rows: read them in the largest pages from now on.
        after, most = rows[-1].name, MAX_PAGE
