"""Updates the metrics every second and every minute, and tells whether the service is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import nsmallest
from math import inf
from time import monotonic

from allocator.errors import (
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.fleet.commands import holders_in
from allocator.schemes.meteor import MeteorSettings
from allocator.service.auth import TokenCache
from allocator.service.error_responses import detail_of
from allocator.service.handlers import IdHandlers
from allocator.service.metrics import MAX_TAGS, OF_TAG, Metrics
from allocator.service.served_ids import TagSource
from allocator.service_allocator import ServiceAllocator

log = logging.getLogger("allocator.service")

SECOND, MINUTE = 1.0, 60.0

SMOOTHING = 0.2
"""Weight of the last second in a rate: a single busy second moves it by only a fifth."""
IDLE = 0.01
"""Ids per second. At a slower rate nothing runs out."""

ENOUGH = 3.0
"""Seconds that the ids in memory must last for readiness without a database."""

OUTAGES = (DatabaseRefused, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of the database, not of one tag."""


class MetricsUpdater:
    def __init__(self, handlers: IdHandlers, token_cache: TokenCache, metrics: Metrics) -> None:
        self._handlers = handlers
        self._ids: ServiceAllocator = handlers.ids
        self._token_cache = token_cache
        self._metrics = metrics
        self._measured_at = monotonic()

    async def run(self) -> None:
        """Update the metrics until cancelled. A slow database delays only what is read from it."""
        await asyncio.gather(repeat(self.update, SECOND), repeat(self.update_rows, MINUTE))

    async def update(self) -> None:
        metrics, handlers = self._metrics, self._handlers
        for source in handlers.sources.all():
            metrics.count(source.scheme, source.tag, source.given)
        metrics.count_all("block", handlers.tags.blocks)
        metrics.count_all("ticket", handlers.tickets)
        self._update_memory()
        errors = self._ids.source.troubles() or [self._token_cache.failure]
        for database, error in zip(self._ids.databases, errors, strict=True):
            word = database.address.word
            metrics.shards.labels(str(word.slot if word else 1)).set(int(error is None))
        self._update_lease()
        metrics.ready.set(int(self.unready_reason() is None))

    def _update_lease(self) -> None:
        lease, gauge = self._ids.lease, self._metrics.lease
        gauge.clear()
        if lease:
            number, left = lease
            gauge.labels(str(number)).set(left)

    def unready_reason(self) -> str | None:
        return unready_reason(self._handlers.sources.tags.values(), self._token_cache)

    def _update_memory(self) -> None:
        """Measure how long the ids of each tag last at the current rate; without draws, for ever."""
        found: dict[str, tuple[int, float]] = {}
        self._measure(monotonic() - self._measured_at)
        for source in self._handlers.sources.tags.values():
            held, name = source.supply.held(), self._metrics.series(source.tag)
            lasting = held / source.rate if source.rate > IDLE else inf
            others = found.get(name, (0, inf))
            found[name] = (others[0] + held, min(others[1], lasting))
        for name, (held, lasting) in found.items():
            self._metrics.in_memory.labels(name).set(held)
            self._metrics.lasting.labels(name).set(lasting)

    def _measure(self, passed: float) -> None:
        self._measured_at += passed
        for source in self._handlers.sources.tags.values():
            used, source.counted = source.given - source.counted, source.given
            source.rate += (used / passed - source.rate) * SMOOTHING

    async def update_rows(self) -> None:
        """Update what the rows say: the ids that are left, and the worker numbers."""
        tags, layout, metrics = await self._ids.tags.list(), MeteorSettings().layout, self._metrics
        nodes, spaces, _ = await self._ids.run(holders_in, self._ids.databases, 1)
        left = {f"{OF_TAG}{tag.name}": tag.remaining for tag in tags}
        left["meteor node"] = layout.limit("node") - max((node.number for node in nodes), default=0)
        # On a thread: of ten thousand tags it would delay requests for ids.
        fewest = await asyncio.to_thread(nsmallest, MAX_TAGS, left, key=lambda name: (left[name], name))
        metrics.left.clear()
        for name in fewest:
            metrics.left.labels(name).set(left[name])
        for space in spaces[:MAX_TAGS]:
            metrics.workers.labels(space.name, "held").set(len(space.held))
            metrics.workers.labels(space.name, "free").set(space.free)


def unready_reason(tags: Iterable[TagSource], token_cache: TokenCache) -> str | None:
    """The reason why the service cannot serve ids for the next seconds, or None.

    The reason names no tag, since /readyz needs no token. The metrics do."""
    sources = [source for source in tags if source.given]
    for source in sources:
        trouble = source.supply.trouble()
        if isinstance(trouble, OUTAGES) and not lasts(source):
            return f"the ids of a tag last less than {ENOUGH:g} seconds: {detail_of(trouble)}"
    failure = token_cache.failure
    if failure is not None and not token_cache.loaded:
        return f"the tokens cannot be read: {detail_of(failure)}"
    if failure is not None and not any(map(lasts, sources)):
        return f"no ids are in memory: {detail_of(failure)}"
    return None


def lasts(source: TagSource) -> bool:
    """Tell whether the ids in memory last long enough at the current rate."""
    return source.supply.held() > ENOUGH * source.rate


async def repeat(update: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        with logged():
            await update()
        await asyncio.sleep(seconds)


@contextmanager
def logged() -> Iterator[None]:
    """Log errors: none may stop the metrics or the ids."""
    try:
        yield
    except AllocatorError as error:
        log.info("cannot update all metrics: %s", error)
    except Exception:
        log.exception("cannot update all metrics")
