"""One call of each scheme and of alternatives, in nanoseconds of CPU per id. Threads in wall-clock time."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from typing import Any

from allocator import Allocator, AsyncAllocator, Meteor, ObjectId, Snowflake

from .rounds import Measure, Race

SECONDS = 0.004
"""Seconds per sample. Short, so that a round ends before the speed of the machine changes."""
BULK = 1000
THREADS = (1, 2, 4, 8)
SUSTAINED = 0.05
PEERS = {
    "uuid.uuid4()": ("uuid", "peer.uuid4()"),
    "uuid_utils.uuid4()": ("uuid_utils", "peer.uuid4()"),
    "uuid_utils.uuid7()": ("uuid_utils", "peer.uuid7()"),
    "bson.ObjectId()": ("bson", "peer.ObjectId()"),
    "ulid.ULID()": ("ulid", "peer.ULID()"),
    "ulid_transform.ulid_now()": ("ulid_transform", "peer.ulid_now()"),
    "tsidpy.TSID.create()": ("tsidpy", "peer.TSID.create()"),
    "snowflake.SnowflakeGenerator": ("snowflake", "next(generator)"),
}


def statement(words: str, ids_each: int = 1, **names: object) -> Measure:
    """CPU per id of a statement, including the loop and claims in the background."""
    timer = timeit.Timer(words, timer=time.process_time, globals=names)
    timer.timeit(10)  # the first call may ask a database
    count, taken = 1, 0.0
    while taken < SECONDS / 4:
        count *= 2
        taken = timer.timeit(count)
    count = max(1, int(count * SECONDS / taken))
    return lambda: timer.timeit(count) / (count * ids_each) * 1e9


def iteration(numbers: Callable[[], Iterator[int]], count: int = 50_000) -> Measure:
    def measure() -> float:
        taken = islice(numbers(), count)
        began = time.process_time()
        for _ in taken:
            pass
        return (time.process_time() - began) / count * 1e9

    return measure


def without(loop: Measure, measure: Measure) -> Measure:
    return lambda: measure() - loop()


def on_threads(next_id: Callable[[], int], threads: int, count: int = 200_000) -> Measure:
    """Wall-clock nanoseconds per id, over all threads."""

    def draw(each: int) -> None:
        for _ in repeat(None, each):
            next_id()

    def measure() -> float:
        workers = [threading.Thread(target=draw, args=(count // threads,)) for _ in range(threads)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return (time.perf_counter() - began) / count * 1e9

    return measure


def by_the_clock(ids: Allocator, tag: str, count: int) -> Measure:
    """Wall-clock nanoseconds per id, including all claims."""

    def measure() -> float:
        began = time.perf_counter()
        for _ in repeat(None, count):
            ids.next_id(tag)
        return (time.perf_counter() - began) / count * 1e9

    return measure


def awaited(runner: asyncio.Runner, words: str, count: int = 20_000, **names: object) -> Measure:
    """CPU of an awaited expression, with the same loop for all candidates."""
    source = f"async def measure(repeat, clock):\n began = clock()\n for _ in repeat: {words}\n return clock() - began"
    scope = dict(names)
    exec(source, scope)  # noqa: S102 - as timeit does: a call of a lambda would cost as much as what is measured
    measure: Any = scope["measure"]
    return lambda: runner.run(measure(repeat(None, count), time.process_time)) / count * 1e9


async def empty() -> None:
    pass


def sustained(ids: Allocator) -> Measure:
    """Snowflakes per millisecond, over many milliseconds."""

    def measure() -> float:
        count, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < SUSTAINED:
            for _ in repeat(None, 256):
                ids.snowflake()
            count += 256
        return count / passed / 1000

    return measure


def peers() -> dict[str, Measure]:
    found = {}
    for name, (module, words) in PEERS.items():
        try:
            peer = importlib.import_module(module)
        except ImportError:
            continue
        found[name] = statement(words, peer=peer, generator=getattr(peer, "SnowflakeGenerator", int)(1))
    return found


@contextmanager
def races(url: str, tag: str) -> Iterator[list[Race]]:
    # Node numbers are never reused, so this run takes them from a database in memory, not from the user's.
    with Allocator(url, timeout=30) as ids, Allocator("sqlite://") as others, asyncio.Runner() as runner:
        sequence = ids.sequence(tag)
        for _ in range(6):  # until segments have grown to this rate
            for _ in islice(sequence, 300_000):
                pass
        names: dict[str, Any] = {"ids": ids, "sequence": sequence, "tag": tag}
        names |= {"meteor": Meteor(node=1), "snowflake": Snowflake(1, 1), "ObjectId": ObjectId}
        numbers = iter(range(10**12, 2 * 10**12))
        shared = AsyncAllocator(ids)
        call = {
            "next(range_iterator)": statement("next(numbers)", numbers=numbers),
            "sequence.next_id()": statement("sequence.next_id()", **names),
            "ids.next_id(tag)": statement("ids.next_id(tag)", **names),
            "Meteor.next_id()": statement("meteor.next_id()", **names),
            "ids.meteor()": statement("ids.meteor()", ids=others),
            "Snowflake.next_id()": statement("snowflake.next_id()", **names),
            "ids.snowflake()": statement("ids.snowflake()", ids=others),
            "ObjectId()": statement("ObjectId()", **names),
            **peers(),
        }
        iterated = {
            "next(range_iterator)": without(statement("pass"), statement("next(numbers)", numbers=numbers)),
            "for id in sequence": without(iteration(lambda: repeat(0)), iteration(lambda: iter(sequence))),
        }
        start = 10**12
        bulk = {
            "list(range)": statement(f"list(range(start, start + {BULK}))", BULK, start=start),
            "ids.next_ids(tag, 1000)": statement(f"ids.next_ids(tag, {BULK})", BULK, **names),
            "sequence.next_ids(1000)": statement(f"sequence.next_ids({BULK})", BULK, **names),
        }
        threads = {f"{n} thread{'s' if n > 1 else ''}": on_threads(sequence.next_id, n) for n in THREADS}
        coroutines = {
            "await empty()": awaited(runner, "await empty()", empty=empty),
            "await ids.next_id(tag)": awaited(runner, "await ids.next_id(tag)", ids=shared, tag=tag),
        }
        rate = {"4096": lambda: 4096.0, "ids.snowflake(), sustained": sustained(others)}
        loop = statement("pass")
        yield [
            Race("call", "ns of CPU", call, loop),
            Race("call, iterated", "ns of CPU an id", iterated),
            Race("call, 1000 at once", "ns of CPU an id", bulk),
            Race("call, on threads", "ns an id", threads),
            Race("call, awaited", "ns of CPU", coroutines, awaited(runner, "pass")),
            Race("call, sustained", "ids a millisecond", rate),
        ]
