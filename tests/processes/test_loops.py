"""asyncio: waiters cancelled at every step of the loop, and several event loops of one process."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.distinct import distinct, none_twice
from support.kit import SQLITE, output, plain
from support.memory.database import Source

from allocator import Allocator, AsyncAllocator
from allocator.aio import AsyncSequence
from allocator.errors import DatabaseUnavailable, InvalidSetting
from allocator.fleet.tag_administration import Tags

WAITERS = 6


async def cancelling(source: Source, ids: AsyncSequence, victims: range, at: int) -> tuple[list[int], int, bool]:
    """Some of the waiters are cancelled after so many turns of the loop, while the claim that all wait for comes in.
    Returns what the others drew, how many were cancelled, and whether all had ended before."""
    tasks = [asyncio.ensure_future(ids.next_ids(3)) for _ in range(WAITERS)]
    for turn in range(at):
        if turn == at // 2:
            source.gate.set()
        await asyncio.sleep(0.0002 if turn % 4 == 3 else 0)
    late = all(task.done() for task in tasks)
    for number in victims:
        tasks[number].cancel()
    source.gate.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(found, asyncio.CancelledError) for found in ended)
    return [number for found in ended if isinstance(found, list) for number in found], cancelled, late


@pytest.mark.parametrize("victims", [range(1), range(WAITERS - 1), range(WAITERS)], ids=["one", "all but one", "all"])
def test_waiters_cancelled_at_any_step_take_nothing_from_the_others(victims):
    at = cancelled = 0
    while True:
        source = Source()
        source.gate.clear()
        shared = Allocator(source, step=4, max_step=4)
        ids = AsyncAllocator(shared).sequence("order")
        drawn, gone, late = asyncio.run(cancelling(source, ids, victims, at))
        drawn += asyncio.run(ids.next_ids(10))
        shared.close()
        cancelled += gone

        assert distinct(drawn) == 3 * (WAITERS - gone) + 10
        assert source.rows["order"].max_value <= 3 * WAITERS + 10 + 4 * 4  # nothing was claimed in vain
        if late or at > 200:
            break
        at += 1

    assert late
    assert cancelled >= len(victims)


@SQLITE
def test_two_loops_in_two_threads_share_one_allocator(url, tag):
    async def draw() -> list[int]:
        found = await asyncio.gather(*(ids.next_ids(tag, 20) for _ in range(10)))
        return sum(found, []) + list(await ids.reserve(tag, 5)) + [await ids.snowflake(), await ids.meteor()]

    with Allocator(url, step=10, max_step=100) as shared, ThreadPoolExecutor(2) as pool:
        ids = AsyncAllocator(shared)
        drawn = sum(pool.map(lambda _: asyncio.run(draw()), range(2)), shared.next_ids(tag, 20))

    assert distinct(drawn) == 2 * 207 + 20


@SQLITE
def test_a_second_loop_goes_on_where_the_first_was_closed(url, tag):
    """Also where the first one left a call behind that waits for a claim."""
    ids = AsyncAllocator(url, step=10, max_step=10)

    async def leave_one_behind() -> list[int]:
        asyncio.ensure_future(ids.next_ids(tag, 500))  # noqa: RUF006 - cancelled by the end of the loop
        return await ids.next_ids(tag, 25)

    drawn = asyncio.run(leave_one_behind())
    drawn += asyncio.run(ids.next_ids(tag, 25))
    asyncio.run(ids.close())

    assert distinct(drawn) == 50


@SQLITE
def test_tags_are_awaited_no_longer_than_the_timeout(url, tag, monkeypatch):
    answered = threading.Event()
    monkeypatch.setattr(Tags, "get", lambda tags, name: answered.wait(60))

    async def asked() -> None:
        with pytest.raises(DatabaseUnavailable, match="within 0.2 seconds"):
            await asyncio.wait_for(AsyncAllocator(ids).tags.get(tag), 30)

    with Allocator(url, timeout=0.2) as ids:
        try:
            asyncio.run(asked())
        finally:
            answered.set()


def test_without_asyncio_the_error_says_what_to_use():
    """As under trio, which runs coroutines by a loop of its own."""
    ids = AsyncAllocator("sqlite://")
    for call in (ids.next_id("order"), ids.tags.list(), ids.create_tables(), ids.close()):
        with pytest.raises(InvalidSetting, match="for asyncio, and no loop of asyncio runs here; with trio use"):
            call.send(None)
    plain(ids).close()


# -- gevent, patched before `import allocator` and after it; an `Allocator` is made after both


pytest.importorskip("gevent", reason="gevent is not installed")

GREENLETS = """
import sys
from gevent import joinall, monkey, sleep, spawn
url, tag, when = sys.argv[1:]
if when == "early":
    monkey.patch_all()
from allocator import Allocator
if when == "late":
    monkey.patch_all()

def draw():
    drawn = []
    for _ in range(40):
        drawn.append(ids.next_id(tag))
        sleep(0)
    return drawn + list(ids.reserve(tag, 3))

with Allocator(url, step=10, max_step=10, timeout=10) as ids:
    jobs = [spawn(draw) for _ in range(5)]
    joinall(jobs, timeout=30, raise_error=True)
    drawn = [number for job in jobs for number in job.value]
    others = {ids.meteor(), ids.snowflake(), ids.ticket(tag), ids.ticket(tag)}
print(len(drawn), len(set(drawn)), len(others))
"""


CASES = [("sqlite", "early"), ("sqlite", "late"), ("postgres", "early"), ("mysql", "early")]


@pytest.mark.parametrize(("kind", "when"), CASES, indirect=["kind"])
def test_greenlets_draw_as_threads_do(url, tag, when):
    drawn, different, others = map(int, output(GREENLETS, url, tag, when, cwd=Path(__file__).parent).split())

    none_twice(drawn - different + 4 - others)
    assert drawn == 215
