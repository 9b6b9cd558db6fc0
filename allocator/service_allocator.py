"""`ServiceAllocator`: what the service asks of an allocator beside what `AsyncAllocator` has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, cast

from allocator.aio import AsyncAllocator
from allocator.generators.backend_protocol import Backend
from allocator.generators.sequence import Sequence
from allocator.runtime.threads import wait_for_async
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.sync import Allocator

if TYPE_CHECKING:
    from allocator.fleet.fleet_backend import Alone, Fleet


class ServiceAllocator(AsyncAllocator):
    """An `AsyncAllocator` with its own databases. Only `open_tag` creates tags.

    urls: the URL of a database, or of each slot of a fleet.
    observe: wraps the backend, to count and time its calls.
    backend: what `observe` made of the source; its calls are blocking, see `run`.
    """

    def __init__(self, urls: tuple[str, ...], timeout: float, observe: Callable[[Backend], Backend]) -> None:
        self._hosted = Allocator(shards=urls, timeout=timeout, create_missing=False)
        super().__init__(self._hosted)
        self._owned = True
        self.source = cast("Alone | Fleet", self._hosted.backend)
        self.databases = self.source.databases()
        self.backend = observe(self.source)
        self._hosted._change(self.backend)
        self.meteors, self.snowflakes = self._hosted._meteor, self._hosted._snowflake

    def deadline(self) -> float:
        """When a call that begins now must end."""
        return monotonic() + self._hosted._terms.timeout

    def supply(self, tag: str) -> Sequence:
        """The ids of a tag, as `meteors` and `snowflakes` are those of a scheme."""
        return self._hosted.sequence(tag)

    run = AsyncAllocator._on_thread
    """Run blocking work on a thread of the allocator. Raises `DatabaseUnavailable` after the timeout."""

    async def open_tag(self, tag: str, create: bool = False) -> Tag:
        """Fetch the row of a tag, and create it if `create`; else raise `UnknownTag` where it is missing."""
        template = replace(self._hosted._template, name=tag)
        return await self.run(self._hosted.backend.open_segment, template, create)

    def page_of_tags(self, after: str, most: int) -> list[Tag]:
        """The first `most` tags after this one, by name. Blocking."""
        return self._hosted.tags._page(after, most)

    async def claim(self, tag: str, size: int, seen: Seen, exact: bool) -> range:
        """Claim a segment for a client, above every id that it has seen.

        size: as the client asked, brought within the bounds of the tag unless `exact`. A cancelled call burns the
        segment.
        """
        return await wait_for_async(self._hosted.sequence(tag)._claimed(size, seen, exact))
