"""The tags of the service: which ones there are, and segments of them for clients that serve from memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from allocator.errors import DatabaseUnavailable, TagExists, UnknownTag
from allocator.host import Host
from allocator.schemes.checks import check_tag
from allocator.schemes.residues import Seen
from allocator.schemes.tag import Tag
from allocator.service.caller import Caller
from allocator.service.draws import Draws, SequenceDraw
from allocator.service.gate import Gate
from allocator.service.new_names import Newcomers
from allocator.service.problems import HttpRefusal

T = TypeVar("T")
Pages = Callable[[str, int], list[Tag]]
"""The first tags after a name, so many at most."""

MAX_PAGE = 1000
"""Tags that are read at once."""

log = logging.getLogger("allocator.service")


class Sequences:
    """`create`: whether a tag is made by its first use, as one of `newcomers`."""

    def __init__(self, ids: Host, draws: Draws, create: bool, newcomers: Newcomers) -> None:
        self._ids = ids
        self._draws = draws
        self._create = create
        self.newcomers = newcomers
        self._gate = Gate("the list of the tags")
        self.blocks: dict[str, int] = {}
        """How many ids of a tag went to clients as segments, for the figures."""

    async def draw(self, tag: str, create: bool = True) -> SequenceDraw:
        """The ids of a tag that exists, or that may be made. Raises `InvalidTag` or `UnknownTag`."""
        name = check_tag(tag)
        known = self._draws.known(name)
        if known is None:
            await self._registered(name, create and self._create)
        return known or self._draws.sequence(name)

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
        await self.draw(tag, create)
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
