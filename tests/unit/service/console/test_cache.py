"""What is kept for a while."""

from __future__ import annotations

import asyncio

from allocator.errors import DatabaseUnavailable
from allocator.service.console.cache import RETRY_AFTER, Cache


class Source:
    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.answer: object = "one"

    async def load(self) -> object:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def cache(self) -> Cache[object]:
        return Cache(self.load, 10.0, lambda: self.now)


def test_it_is_read_once_for_all_who_ask_within_its_time():
    async def run() -> None:
        source = Source()
        cache = source.cache()
        found = await asyncio.gather(*(cache.get() for _ in range(5)))
        assert ({one.value for one in found}, source.asked) == ({"one"}, 1)
        source.now += 9.9
        await cache.get()
        assert source.asked == 1
        source.now += 0.1
        await cache.get()
        assert source.asked == 2

    asyncio.run(run())


def test_what_was_read_last_stays_while_it_fails():
    async def run(error: Exception) -> None:
        source = Source()
        cache = source.cache()
        await cache.get()
        source.now, source.answer = source.now + 20, error
        found = await cache.get()
        assert (found.value, found.age) == ("one", 20.0), error
        assert isinstance(found.error, DatabaseUnavailable), error
        await cache.get()
        assert source.asked == 2, error  # not again at once
        source.now, source.answer = source.now + RETRY_AFTER, "two"
        await cache.get()
        await asyncio.sleep(0)
        found = await cache.get()
        assert (found.value, found.error) == ("two", None), error

    for error in (DatabaseUnavailable("away"), RuntimeError("can't start new thread")):
        asyncio.run(run(error))


def test_a_page_does_not_wait_for_ever():
    async def run() -> None:
        hanging = asyncio.Event()

        async def load() -> str:
            await hanging.wait()
            return "late"

        cache = Cache(load, 10.0)
        found = await cache.get(max_wait=0.0)
        assert (found.value, found.is_loading) == (None, True)
        hanging.set()
        assert (await cache.get()).value == "late"

    asyncio.run(run())
