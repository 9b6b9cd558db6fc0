"""The tags for pages: cached from the databases, with the rates of the last seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from time import time

from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.schemes.tag import Tag
from allocator.service.console.cache import MAX_WAIT, Cache, Cached
from allocator.service.console.rows import Page, Query, Row, page_of, row_of, sort_key
from allocator.service.console.sign_in import User
from allocator.service.console.tag_metrics import NOTHING, Reading, totals_of
from allocator.service.metric_updates import MetricsUpdater
from allocator.service.metrics import Metrics
from allocator.service.served_tags import ServedTags

LIFETIME, METRICS_LIFETIME = 3.0, 2.0
"""Seconds that the list of tags, and the metrics, are not read again."""
AWAY_SECONDS = 4.0
"""Seconds after a failure in which the page of a tag does not try the databases."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the list.

    rate: of all ids if the user sees all tags, else of the user's tags.
    shortest: the tag whose ids in memory run out first.
    """

    page: Page
    rows: list[Row]
    rate: float
    shortest: Row | None


class TagData:
    def __init__(self, tags: ServedTags, metrics: Metrics, updater: MetricsUpdater) -> None:
        self._served = tags
        self._metrics = metrics
        self._updater = updater
        self._reading = NOTHING
        self._readings = Cache(self._read_metrics, METRICS_LIFETIME)
        self.tags: Cache[dict[str, Tag]] = Cache(self._load_tags, LIFETIME)

    async def _load_tags(self) -> dict[str, Tag]:
        return {tag.name: tag for tag in await self._served.all()}

    async def _read_metrics(self) -> Reading:
        totals = await asyncio.to_thread(lambda: totals_of(self._metrics.collect()))
        self._reading = self._reading.following(totals, time())
        return self._reading

    async def reading(self) -> Reading:
        return (await self._readings.get()).value or NOTHING

    async def listing(self, user: User, query: Query) -> tuple[Listing, Cached[dict[str, Tag]]]:
        """List tags. Sorting runs on a thread: ten thousand tags would delay requests for ids."""
        reading, cached = await self.reading(), await self.tags.get()
        return await asyncio.to_thread(self._listing, user, query, cached.value or {}, reading), cached

    def _listing(self, user: User, query: Query, tags: Mapping[str, Tag], reading: Reading) -> Listing:
        rate, metrics = reading.rate(), reading.of_tags()
        names = sorted(tags.keys() | metrics.keys())
        if not user.sees_all:
            names = [name for name in names if user.sees(name)]
            metrics = {name: metrics[name] for name in names if name in metrics}
            rate = sum(one.rate for one in metrics.values())
        days = self._updater.tags_left.days

        def row(name: str) -> Row:
            return row_of(name, tags.get(name), metrics.get(name), days.get(name))

        page = page_of(names, query, sort_key(query.sort, row))
        shortest = min(metrics, key=lambda name: metrics[name].lasting, default=None)
        is_drawn = shortest is not None and metrics[shortest].lasting < inf
        return Listing(page, [row(name) for name in page.names], rate, row(shortest) if shortest and is_drawn else None)

    async def row(self, name: str) -> tuple[Row, AllocatorError | None]:
        """Read a tag; while the databases do not answer, return the cached one and the error. Raises `UnknownTag`."""
        metrics = (await self.reading()).of_tags()
        tag, error = await self._tag(name)
        return row_of(name, tag, metrics.get(name), self._updater.tags_left.days.get(name)), error

    async def _tag(self, name: str) -> tuple[Tag | None, AllocatorError | None]:
        error = self.tags.recent_failure(AWAY_SECONDS)
        if error is None:
            try:
                async with asyncio.timeout(MAX_WAIT):
                    return await self._served.get(name), None
            except TimeoutError:
                error = DatabaseUnavailable("the databases do not answer")
            except DatabaseUnavailable as away:
                error = away
        known = (await self.tags.get(0.0)).value or {}
        return known.get(name), error
