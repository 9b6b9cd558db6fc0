"""The tags of the service: list, settings, creation on first use, and segments for clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from allocator.database.verbs import tickets
from allocator.errors import AllocatorError, DatabaseUnavailable, TagExists, UnknownTag
from allocator.fleet.fleet_backend import Fleet
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.service.error_responses import HttpRefusal
from allocator.service.id_sources import Sources, TagSource
from allocator.service.log_config import Caller
from allocator.service.rate_limits import ReadQueue
from allocator.service_allocator import ServiceAllocator

T = TypeVar("T")
PageReader = Callable[[str, int], list[Tag]]
"""Takes a name and a limit; returns the tags after the name, at most that many."""

MAX_PAGE = 1000
"""The most tags in one query; a client asks for the next page after the last name."""

log = logging.getLogger("allocator.service")


class ServedTags:
    """`create`: whether the first use of a tag creates it, within the limit of `creation_limit`."""

    def __init__(self, ids: ServiceAllocator, sources: Sources, create: bool, creation_limit: CreationLimit) -> None:
        self._ids = ids
        self._sources = sources
        self._create = create
        self.creation_limit = creation_limit
        self._queue = ReadQueue("the list of tags")
        self.blocks: dict[str, int] = {}
        """Ids in segments by tag, for the metrics. A segment counts as a whole when it is sent."""

    async def source(self, tag: str, create: bool = True) -> TagSource:
        """The source of a tag; create a missing tag if allowed. Raises `InvalidTag` or `UnknownTag`."""
        name = check_tag(tag)
        if name not in self._sources.tags:
            await self._open(name, create and self._create)
            self._sources.tags.setdefault(name, TagSource(self._ids, name))
        return self._sources.tags[name]

    async def _open(self, name: str, create: bool) -> None:
        """Make sure that the tag exists before a name that may be made up takes memory."""
        try:
            await self._ids.open_tag(name)
        except UnknownTag:
            if not create:
                raise
            make = partial(self._ids.open_tag, name, create=True)
            await self.creation_limit.make("tag", name, self._ids.count_tags, make)

    async def claim(self, tag: str, size: int | None, seen: Seen, *, exact: bool, create: bool = True) -> range:
        """Claim a segment for a client, above all ids that the client or this process has seen."""
        await self.source(tag, create)
        segment = await self._ids.claim(tag, size, seen, exact)
        self.blocks[tag] = self.blocks.get(tag, 0) + len(segment)
        return segment

    async def read(self, work: Callable[[PageReader], T]) -> T:
        """Run a read of many tags on a thread, one at a time."""
        return await self._queue.run(partial(self._ids.run, work, self._ids.page_of_tags))

    async def all(self) -> list[Tag]:
        """Read all tags page by page."""
        tags = page = await self.read(partial(page_of, after="", limit=MAX_PAGE))
        while len(page) == MAX_PAGE:
            page = await self.read(partial(page_of, after=page[-1].name, limit=MAX_PAGE))
            tags = [*tags, *page]
        return tags

    async def get(self, tag: str) -> Tag:
        """Read a tag from all shards, or from one while another is away, so that clients can start."""
        try:
            return await self._ids.tags.get(tag)
        except DatabaseUnavailable:
            return await self._ids.open_tag(tag)

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
            make = partial(self._ids.tags.create, tag, **form)
            try:
                return await self.creation_limit.make("tag", tag, partial(self._count_others, tag), make), True
            except TagExists:
                if new:
                    raise
        return await self._ids.tags.set(tag, **form), False

    async def _count_others(self, tag: str) -> int | None:
        """The number of tags; None if this one exists."""
        try:
            await self._ids.open_tag(tag)
        except UnknownTag:
            return await self._ids.count_tags()
        return None


def anything(name: str) -> bool:
    return True


def page_of(pages: PageReader, after: str, limit: int, sees: Callable[[str], bool] = anything) -> list[Tag]:
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


class CreationLimit:
    """Creates tags and ticket types until the database holds `most` of them.

    Creates one at a time, so that concurrent requests cannot exceed the limit between the count and the use. Workers do
    not wait for each other: R replicas may exceed the limit by R - 1.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self._seconds = seconds
        self._lock = asyncio.Lock()

    async def make(
        self, kind: str, name: str, count: Callable[[], Awaitable[int | None]], make: Callable[[], Awaitable[T]]
    ) -> T:
        """Call `make` and return its result. `count` returns the number of names, or None if this one exists by now."""
        try:
            await asyncio.wait_for(self._lock.acquire(), self._seconds)
        except TimeoutError:
            raise DatabaseUnavailable(f"{kind} {name!r} is not created yet: others are created first; retry") from None
        try:
            number = await count()
            if number is not None and number >= self.most:
                raise UnknownTag(
                    f"{kind} {name!r} does not exist, and this service creates no more than {self.most} {kind}s "
                    "(allocator serve --max-tags)"
                )
            return await make()
        finally:
            self._lock.release()


def ticket_types(databases: Fleet, kind: str) -> int | None:
    """Count the ticket types, on the shard that has most; None if this type has tickets. Blocking."""
    databases.open()
    found: list[int] = []
    error: AllocatorError | None = None
    for database, trouble in zip(databases.databases(), databases.troubles(), strict=False):
        try:
            if trouble is not None:
                raise trouble.again()
            number = database.run(tickets.count_types, kind)
        except AllocatorError as failure:
            error = failure
            continue
        if number is None:
            return None
        found.append(number)
    if error is not None and not found:
        raise error
    return max(found)
