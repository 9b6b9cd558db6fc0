"""What the databases say, read once for all who look."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from allocator.errors import DatabaseUnavailable
from allocator.runtime.thread_pool import Background
from allocator.schemes.tag import Tag
from allocator.service.console import latest as module
from allocator.service.console.latest import Latest, read_tags


class Source:
    """Answers, or raises, what it has."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reads = 0
        self.answer: Any = "one"

    def read(self) -> Any:
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()
    monkeypatch.setattr(module, "monotonic", lambda: made.now)
    return made


def run(read: Any, test: Any) -> None:
    background = Background()
    asyncio.run(test(Latest(background, read, 3.0)))
    background.close(0.0)


def test_it_is_read_once_for_all_who_ask_within_its_time(source):
    async def test(latest: Latest[str]) -> None:
        await asyncio.gather(*(latest.ask() for _ in range(24)))
        assert (latest.value, source.reads) == ("one", 1)
        source.now += 2.9
        await latest.ask()
        assert source.reads == 1
        source.now += 9.0
        await latest.ask()
        assert (latest.age, source.reads) == (0.0, 2), "an old one is waited for"

    run(source.read, test)


def test_what_was_read_last_stays_while_it_fails(source):
    async def test(latest: Latest[str]) -> None:
        await latest.ask()
        for error in (DatabaseUnavailable("away"), RuntimeError("can't start new thread")):
            source.now, source.answer = source.now + 9, error
            reads = latest.reads
            await latest.ask()
            while latest.reads == reads:
                await asyncio.sleep(0)
            assert latest.value == "one"
            assert isinstance(latest.error, DatabaseUnavailable)

    run(source.read, test)


def test_an_old_error_is_not_shown(source):
    async def test(latest: Latest[str]) -> None:
        source.answer = DatabaseUnavailable("away")
        await latest.ask()
        assert latest.error
        source.now, source.answer = source.now + 4, "back"
        await latest.ask()
        assert latest.error, "a page waits while reads fail"
        while latest.reads == 1:
            await asyncio.sleep(0)
        source.now, source.answer = source.now + 4, DatabaseUnavailable("away")
        await latest.ask()
        while latest.reads == 2:
            await asyncio.sleep(0)
        source.now, source.answer = source.now + 100, "back"
        await latest.ask()
        assert (latest.value, latest.error) == ("back", None)

    run(source.read, test)


def test_a_page_does_not_wait_for_ever(monkeypatch):
    async def test(latest: Latest[None]) -> None:
        await latest.ask()
        assert (latest.value, latest.error) == (None, None)

    hangs = threading.Event()
    monkeypatch.setattr(module, "MAX_WAIT", 0.0)
    run(hangs.wait, test)
    hangs.set()


class Shard:
    def __init__(self, answers: bool) -> None:
        self.answers = answers

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        if not self.answers:
            raise DatabaseUnavailable("away")
        return [Tag("order", 7)]


def test_a_shard_that_is_away_hides_no_tag():
    def fleet(*answers: bool) -> Any:
        return SimpleNamespace(databases=lambda: [Shard(one) for one in answers])

    assert read_tags(fleet(True, False, True)) == ({"order": Tag("order", 7)}, [2], 3)
    assert read_tags(fleet(True)).away == []
    with pytest.raises(DatabaseUnavailable):
        read_tags(fleet(False, False))
