"""The tags of the service: which ones there are, and segments of them for clients that serve from memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from allocator.database.verbs import tickets
from allocator.errors import AllocatorError, DatabaseUnavailable, TagExists, UnknownTag
from allocator.fleet.fleet import Fleet
from allocator.host import Host
from allocator.schemes.checks import check_tag
from allocator.schemes.residues import Seen
from allocator.schemes.tag import Tag
from allocator.service.log_config import Caller
from allocator.service.problems import HttpRefusal
from allocator.service.rate_limits import Gate
from allocator.service.sources import Sources, TagSource

T = TypeVar("T")
Pages = Callable[[str, int], list[Tag]]
"""The first tags after a name, so many at most."""

MAX_PAGE = 1000
"""Tags that are read at once."""

log = logging.getLogger("allocator.service")


class Sequences:
    """`create`: whether a tag is made by its first use, as one of `newcomers`."""

    def __init__(self, ids: Host, sources: Sources, create: bool, newcomers: Newcomers) -> None:
        self._ids = ids
        self._sources = sources
        self._create = create
        self.newcomers = newcomers
        self._gate = Gate("the list of the tags")
        self.blocks: dict[str, int] = {}
        """How many ids of a tag went to clients as segments, for the figures."""

    async def source(self, tag: str, create: bool = True) -> TagSource:
        """The ids of a tag that exists, or that may be made. Raises `InvalidTag` or `UnknownTag`."""
        name = check_tag(tag)
        if name not in self._sources.tags:
            await self._registered(name, create and self._create)
            self._sources.tags.setdefault(name, TagSource(self._ids, name))
        return self._sources.tags[name]

    async def _registered(self, name: str, create: bool) -> None:
        """Before anything in memory is made for a name that a caller may have made up."""
        try:
            await self._ids.open_tag(name)
        except UnknownTag:
            if not create:
                raise
            make = partial(self._ids.open_tag, name, create=True)
            await self.newcomers.make("tag", name, self._ids.count_tags, make)

    async def claim(self, tag: str, size: int | None, seen: Seen, *, exact: bool, create: bool = True) -> range:
        """A segment that belongs to the caller alone, above whatever anybody here has seen."""
        await self.source(tag, create)
        segment = await self._ids.claim(tag, size, seen, exact)
        self.blocks[tag] = self.blocks.get(tag, 0) + len(segment)
        return segment

    async def read(self, work: Callable[[Pages], T]) -> T:
        """What a reader of many tags brings, on a thread: one at a time, beside the claims."""
        return await self._gate.run(partial(self._ids.run, work, self._ids.page_of_tags))

    async def all(self) -> list[Tag]:
        """Every tag, page after page, for the console."""
        found = page = await self.read(partial(page_of, after="", limit=MAX_PAGE))
        while len(page) == MAX_PAGE:
            page = await self.read(partial(page_of, after=page[-1].name, limit=MAX_PAGE))
            found = [*found, *page]
        return found

    async def get(self, tag: str) -> Tag:
        """As all shards together have it; while one is away as another one does, so that clients can start."""
        try:
            return await self._ids.tags.get(tag)
        except DatabaseUnavailable:
            return await self._ids.open_tag(tag)

    async def put(self, tag: str, form: dict[str, Any], caller: Caller, *, new: bool, old: bool) -> tuple[Tag, bool]:
        """Create a tag (`new`), change one (`old`), or whichever is needed; whether it was created. Logs who did."""
        found, created = await self._put(tag, form, new=new, old=old)
        what, said = "created" if created else "changed", ", ".join(f"{name}={value}" for name, value in form.items())
        about = {"tag": tag, "change": what, "caller": caller.address, "token": caller.token}
        log.info("tag %r was %s by %s: %s", tag, what, caller, said or "as it is by default", extra=about)
        return found, created

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


def anything(name: str) -> bool:
    return True


def page_of(pages: Pages, after: str, limit: int, sees: Callable[[str], bool] = anything) -> list[Tag]:
    """The first `limit` tags after this one, of those that a caller `sees`. Blocking."""
    found: list[Tag] = []
    most = limit
    while True:
        rows = pages(after, most)
        found += [tag for tag in rows if sees(tag.name)]
        if len(found) >= limit or len(rows) < most:
            return found[:limit]
        after, most = rows[-1].name, MAX_PAGE


# -- names that callers make up


class Newcomers:
    """Tags and ticket types that are made by their first use, up to a number that the database counts.

    One at a time, so that requests which arrive together cannot exceed `most` between the count and the use.

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
