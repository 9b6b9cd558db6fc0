"""Health, readiness and the metrics: updated every second and every minute, and their routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from heapq import nsmallest
from math import inf
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

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
from allocator.schemes.tag import Tag
from allocator.schemes.token import READ
from allocator.service.auth import TokenCache
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal, detail_of
from allocator.service.metrics import MAX_TAGS, OF_TAG, Metrics
from allocator.service.routes import IdHandlers
from allocator.service.served_ids import TagSource

log = logging.getLogger("allocator.service")

SECOND, MINUTE = 1.0, 60.0
MAX_SHOWN = 10_000
"""Tags that the console knows, by name; there may be millions."""

ENOUGH = 3.0
"""Seconds that the ids in memory must last for readiness without a database."""

OUTAGES = (DatabaseRefused, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of the database, not of one tag."""


class MetricsUpdater:
    def __init__(self, handlers: IdHandlers, token_cache: TokenCache, metrics: Metrics) -> None:
        self._handlers = handlers
        self._ids = handlers.ids
        self._token_cache = token_cache
        self._metrics = metrics
        self._measured_at = monotonic()
        self.away: list[AllocatorError | None] = []
        """Why each database is not used, None for the others."""
        self.tags: dict[str, Tag] | None = None
        """The first tags by name, as the databases had them when they were last read."""
        self._read_at = -inf

    async def run(self) -> None:
        """Update the metrics until cancelled. A slow database delays only what is read from it."""
        what = "update all metrics"
        await asyncio.gather(repeat(what, self.update, SECOND), repeat(what, self.update_rows, MINUTE))

    async def update(self) -> None:
        metrics, handlers = self._metrics, self._handlers
        for source in handlers.sources.all():
            metrics.count(source.scheme, {source.tag: source.given})
        metrics.count("block", handlers.sources.blocks)
        metrics.count("ticket", handlers.tickets)
        self._update_memory()
        self.away = self._ids.source.troubles() or [self._token_cache.failure]
        for database, error in zip(self._ids.databases, self.away, strict=True):
            word = database.address.word
            metrics.shards.labels(str(word.slot if word else 1)).set(int(error is None))
        self._update_lease()
        metrics.ready.set(int(self.unready_reason() is None))

    def age(self) -> float | None:
        """Seconds since the tags were read, if they were."""
        return None if self.tags is None else monotonic() - self._read_at

    def _update_lease(self) -> None:
        lease, gauge = self._ids.snowflakes.lease(), self._metrics.lease
        gauge.clear()
        if lease:
            number, left = lease
            gauge.labels(str(number)).set(left)

    def unready_reason(self) -> str | None:
        return unready_reason(self._handlers.sources.tags.values(), self._token_cache)

    def _update_memory(self) -> None:
        """Measure how long the ids of each tag last at the current rate; without draws, for ever."""
        found: dict[str, tuple[int, float]] = {}
        passed = monotonic() - self._measured_at
        self._measured_at += passed
        for source in self._handlers.sources.tags.values():
            source.measure(passed)
            name = self._metrics.series(source.tag)
            held, lasting = found.get(name, (0, inf))
            found[name] = (held + source.supply.held(), min(lasting, source.lasting()))
        for name, (held, lasting) in found.items():
            self._metrics.in_memory.labels(name).set(held)
            self._metrics.lasting.labels(name).set(lasting)

    async def update_rows(self) -> None:
        """Update what the rows say: the ids that are left, and the worker numbers."""
        tags, layout, metrics = await self._ids.tags.list(), MeteorSettings().layout, self._metrics
        self.tags, self._read_at = {tag.name: tag for tag in tags[:MAX_SHOWN]}, monotonic()
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


async def repeat(what: str, update: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Run `update` until cancelled, with so many seconds between. An error is logged, and stops nothing."""
    while True:
        try:
            await update()
        except AllocatorError as error:
            log.info("cannot %s: %s", what, error)
        except Exception:  # such as no free thread
            log.exception("cannot %s", what)
        await asyncio.sleep(seconds)


def routes(dispatch: Dispatch, updater: MetricsUpdater, metrics: Metrics) -> list[BaseRoute]:
    text, written_at, turn = b"", -inf, asyncio.Lock()

    async def healthy(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(request: Request) -> Response:
        if reason := updater.unready_reason():
            raise HttpRefusal(503, reason)
        return json_response({"status": "ready"})

    async def metrics_text(request: Request) -> Response:
        principal = await dispatch.principal_of(request)
        principal.check(READ, "*")  # the series name all tags
        nonlocal text, written_at
        async with turn:  # who asks meanwhile, or soon after, gets the same text
            if monotonic() - written_at >= SECOND:
                text, written_at = await asyncio.to_thread(metrics.text), monotonic()
        return Response(text, 200, dict(NO_STORE), "text/plain; version=0.0.4; charset=utf-8")

    async def described(request: Request) -> Response:
        return json_response(request.app.state.description)

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics_text)),
        Route("/openapi.json", guarded(described)),
    ]
