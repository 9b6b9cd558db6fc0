"""Administration of tags for asyncio, on threads of the allocator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from allocator.fleet.tags import Tags
from allocator.rules.failover import FailoverGap
from allocator.schemes.tag import Tag

P = ParamSpec("P")
T = TypeVar("T")


class OnThread(Protocol):
    """Runs blocking work on a thread; the wait ends after the allocator's timeout."""

    def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class AsyncTags:
    """`Tags` for asyncio, at `AsyncAllocator.tags`.

    Each method raises `DatabaseUnavailable` after the allocator's `timeout`; the change may still take effect later.
    """

    def __init__(self, tags: Tags, on_thread: OnThread) -> None:
        self._tags = tags
        self._on_thread = on_thread

    async def create(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int = 0,
        start_after_column: str | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> Tag:
        return await self._on_thread(
            self._tags.create,
            tag,
            step=step,
            max_step=max_step,
            limit=limit,
            failover_gap=failover_gap,
            start_after=start_after,
            start_after_column=start_after_column,
        )

    async def list(self) -> list[Tag]:
        return await self._on_thread(self._tags.list)

    async def get(self, tag: str) -> Tag:
        return await self._on_thread(self._tags.get, tag)

    async def set(
        self,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> Tag:
        return await self._on_thread(
            self._tags.set,
            tag,
            step=step,
            max_step=max_step,
            limit=limit,
            start_after=start_after,
            failover_gap=failover_gap,
        )

    async def repair(self, tag: str, *, above: int | None = None) -> Tag:
        return await self._on_thread(self._tags.repair, tag, above=above)
