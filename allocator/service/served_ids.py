"""What the service serves: the sources of ids of the hot routes, one per tag and scheme, and the tags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from allocator.errors import InvalidCount
from allocator.generators.objectid import several
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.service_allocator import ServiceAllocator

METEOR, SNOWFLAKE, OBJECTID = "meteor", "snowflake", "objectid"

PageReader = Callable[[str, int], list[Tag]]
"""Takes a name and a limit; returns the tags after the name, at most that many."""

MAX_PAGE = 1000
"""The most tags in one query; a client asks for the next page after the last name."""

SEGMENT = 1000
"""Ids of a segment, unless its client asks for another size."""
MAX_COUNT = 1000
"""Ids of one answer: while it is made, no other request is answered. Who needs more takes a segment."""

SMOOTHING = 0.2
"""Weight of the last second in a rate: a single busy second moves it by only a fifth."""
IDLE = 0.01
"""Ids per second. At a slower rate nothing runs out."""


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

    def measure(self, passed: float) -> None:
        """Note the ids of the last `passed` seconds in the rate."""
        used, self.counted = self.given - self.counted, self.given
        self.rate += (used / passed - self.rate) * SMOOTHING

    def lasting(self) -> float:
        """Seconds until the ids in memory run out at this rate; without draws, for ever."""
        return self.supply.held() / self.rate if self.rate > IDLE else inf

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
    """All sources of this process: one per scheme, and one per tag in use.

    blocks: ids in segments by tag, for the metrics. A segment counts as a whole when it is sent.
    """

    def __init__(self, ids: ServiceAllocator) -> None:
        self._ids = ids
        self.meteor = Source(METEOR, ids.meteors.several, ids.meteors.at_hand)
        self.snowflake = Source(SNOWFLAKE, ids.snowflakes.several, ids.snowflakes.at_hand)
        self.objectid = Source(OBJECTID, object_ids, form=b"%b")
        self.tags: dict[str, TagSource] = {}
        self.blocks: dict[str, int] = {}

    def all(self) -> list[Source]:
        return [self.meteor, self.snowflake, self.objectid, *self.tags.values()]

    async def of_tag(self, tag: str, create: bool = False) -> TagSource:
        """The source of a tag; make a missing tag if `create`. Raises `InvalidTag` or `UnknownTag`."""
        name = check_tag(tag)
        if name not in self.tags:
            await self._ids.open_tag(name, create)  # before a name that may be made up takes memory
            self.tags.setdefault(name, TagSource(self._ids, name))
        return self.tags[name]

    async def claim(self, tag: str, size: int, seen: Seen, *, exact: bool, create: bool = False) -> range:
        """Claim a segment for a client, above all ids that the client or this process has seen."""
        await self.of_tag(tag, create)
        segment = await self._ids.claim(tag, size, seen, exact)
        self.blocks[tag] = self.blocks.get(tag, 0) + len(segment)
        return segment


async def object_ids(count: int) -> list[bytes]:
    return [one.hex().encode() for one in several(count)]


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
