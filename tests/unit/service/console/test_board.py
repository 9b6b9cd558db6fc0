"""What the pages of one tag ask of the databases, and of the other workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allocator import DatabaseUnavailable, UnknownTag
from allocator.schemes.tag import Tag
from allocator.service.console import board as module
from allocator.service.console.board import Board
from allocator.service.console.peers import Peers
from allocator.service.console.pulse import ALL
from allocator.service.console.tag_table import Figure


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
    def __init__(self, folder: Path) -> None:
        self.databases: Any = Databases()
        self.peers = Peers(str(folder), 2)
        pulse: Any = SimpleNamespace(samples=lambda name: [], rate=float, figures=lambda: {"memory": Figure(5.0)})
        watch: Any = SimpleNamespace(days={})
        self.board = Board(self.databases, pulse, self.peers, watch)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_who_makes_up_names_makes_no_file_of_them(desk):
    async def run() -> None:
        for at in range(3):
            assert await desk.board.history(f"made-up-{at}") == []
            with pytest.raises(UnknownTag):
                await desk.board.row(f"made-up-{at}")

    asyncio.run(run())

    assert desk.peers.wanted() == []


def test_the_others_are_asked_for_a_tag_that_is_there(desk):
    asyncio.run(desk.board.history("order"))
    assert desk.peers.wanted() == ["order"]
    asyncio.run(desk.board.history(ALL))
    assert sorted(desk.peers.wanted()) == [ALL, "order"]


def test_a_page_of_a_tag_that_is_newer_than_the_list_lets_its_plot_be_asked_for(desk):
    async def run() -> None:
        await desk.board.tags.get()
        await desk.board.row("order")
        desk.board.tags._value = {}
        assert await desk.board._is_known("order")

    asyncio.run(run())


def test_while_the_databases_are_away_memory_is_shown_and_no_name_kept(desk):
    desk.databases.is_away = True
    row, error = asyncio.run(desk.board.row("memory"))

    assert (row.tag, row.figure) == (None, Figure(5.0))
    assert isinstance(error, DatabaseUnavailable)
    assert desk.peers.wanted() == [ALL]


def test_a_tag_is_asked_for_again_when_the_failure_is_some_seconds_old(desk, monkeypatch):
    async def run() -> None:
        desk.databases.is_away = True
        await desk.board.tags.get()
        desk.databases.is_away = False
        row, error = await desk.board.row("order")
        assert isinstance(error, DatabaseUnavailable)  # it has just failed, and nobody waits for the next try
        monkeypatch.setattr(module, "AWAY_FOR", 0.0)
        row, error = await desk.board.row("order")
        assert (row.tag, error) == (Tag("order"), None)

    asyncio.run(run())
