"""Tags from the databases, beside what the metrics say."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from allocator.errors import DatabaseUnavailable, UnknownTag
from allocator.schemes.tag import Tag
from allocator.service.console import tag_data as module
from allocator.service.console.rows import Query, TagMetrics
from allocator.service.console.tag_data import TagData
from allocator.service.metrics import Metrics


class Databases:
    """Knows the tag `order`, while it is there."""

    def __init__(self) -> None:
        self.is_away = False

    async def all(self) -> list[Tag]:
        return [await self.get("order")]

    async def get(self, tag: str) -> Tag:
        if self.is_away:
            raise DatabaseUnavailable("away")
        if tag != "order":
            raise UnknownTag(f"tag {tag!r} does not exist")
        return Tag(tag)


class Desk:
    def __init__(self) -> None:
        self.databases: Any = Databases()
        self.metrics = Metrics()
        self.metrics.in_memory.labels("memory").set(7)
        self.metrics.lasting.labels("memory").set(2.5)
        updater: Any = SimpleNamespace(tags_left=SimpleNamespace(days={}))
        self.data = TagData(self.databases, self.metrics, updater)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_while_the_databases_are_away_memory_is_shown(desk):
    desk.databases.is_away = True
    row, error = asyncio.run(desk.data.row("memory"))

    assert (row.tag, row.metrics) == (None, TagMetrics(0.0, 7, 2.5))
    assert isinstance(error, DatabaseUnavailable)


def test_who_sees_some_tags_learns_of_these_alone(desk):
    some: Any = SimpleNamespace(sees_all=False, sees=lambda name: name == "order")
    everything: Any = SimpleNamespace(sees_all=True)

    async def names(user: Any) -> tuple[list[str], str | None]:
        listing, _ = await desk.data.listing(user, Query())
        return [row.name for row in listing.rows], listing.shortest and listing.shortest.name

    assert asyncio.run(names(some)) == (["order"], None)
    assert asyncio.run(names(everything)) == (["memory", "order"], "memory")


def test_a_tag_is_asked_for_again_when_the_failure_is_some_seconds_old(desk, monkeypatch):
    async def run() -> None:
        desk.databases.is_away = True
        await desk.data.tags.get()
        desk.databases.is_away = False
        row, error = await desk.data.row("order")
        assert isinstance(error, DatabaseUnavailable)  # it has just failed, and nobody waits for the next try
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
        row, error = await desk.data.row("order")
        assert (row.tag, error) == (Tag("order"), None)

    asyncio.run(run())
