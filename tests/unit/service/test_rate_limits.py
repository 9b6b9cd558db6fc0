"""Costly work of readers: one at a time, some wait, and no more."""

from __future__ import annotations

import asyncio

import pytest

from allocator.service.error_responses import Busy, headers_of, status_of
from allocator.service.rate_limits import MAX_WAITING, ReadQueue


class Work:
    """Ends when it may; counts how many run at a time."""

    def __init__(self) -> None:
        self.running = self.most = self.done = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1
        self.done += 1
        return self.done


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_runs_at_a_time_and_too_many_are_refused():
    async def story() -> None:
        queue, work = ReadQueue("the list"), Work()
        tasks = [asyncio.create_task(queue.run(work)) for _ in range(MAX_WAITING + 3)]
        await settled()
        refused = [task.exception() for task in tasks if task.done()]
        work.may_end.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(error) for error in refused] == [Busy, Busy]
        assert (work.most, work.done) == (1, MAX_WAITING + 1)
        assert results[:3] == [1, 2, 3]
        assert await queue.run(work) == MAX_WAITING + 2

    asyncio.run(story())


def test_who_gives_up_or_fails_leaves_the_gate_open():
    async def story() -> None:
        queue, work = ReadQueue("the list"), Work()
        first, waiting, last = (asyncio.create_task(queue.run(work)) for _ in range(3))
        await settled()
        waiting.cancel()
        first.cancel()
        work.may_end.set()

        assert await last == 1
        with pytest.raises(ZeroDivisionError):
            await queue.run(failing)
        assert await queue.run(work) == 2

    asyncio.run(story())


async def failing() -> None:
    raise ZeroDivisionError


def test_a_refusal_says_when_to_try_again():
    error = Busy("16 requests already wait for the list; retry")

    assert (status_of(error), headers_of(error)) == (503, {"retry-after": "1"})
