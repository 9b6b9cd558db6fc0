"""One call of each scheme and of alternatives, in nanoseconds of CPU per id. Threads in wall-clock time."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, repeat
from typing import Any

from allocator import Allocator, AsyncAllocator, Meteor, ObjectId, Snowflake

from .places import Place
from .rounds import Figure, Measure, Race

SECONDS = 0.004
"""Seconds per sample. Short, so that a round ends before the speed of the machine changes."""
BULK, MANY = 1000, 10_000
THREADS = (1, 8)
PEERS = (
    "uuid.uuid4()",
    "uuid_utils.uuid4()",
    "uuid_utils.uuid7()",
    "bson.ObjectId()",
    "ulid.ULID()",
    "ulid_transform.ulid_now()",
    "tsidpy.TSID.create()",
)
"""Calls of other libraries, as far as they are installed."""

NEXT, HANDLE = "next(range_iterator)", "sequence.next_id()"
CALL = (
    Figure(HANDLE, HANDLE, NEXT, "≤ 2.2"),
    Figure("ids.next_id(tag)", "ids.next_id(tag)", NEXT, "≤ 2.9"),
    Figure("Meteor.next_id()", "Meteor.next_id()", NEXT, "≤ 4"),
    Figure("ids.meteor()", "ids.meteor()", NEXT, "≤ 4"),
    Figure("Snowflake.next_id(), CPU", "Snowflake.next_id()", NEXT, "≤ 8"),
    Figure("ids.snowflake(), CPU", "ids.snowflake()", NEXT, "≤ 8"),
    Figure("uuid.uuid4() to sequence.next_id()", "uuid.uuid4()", HANDLE, "≥ 35"),
    Figure("uuid_utils.uuid7() to sequence.next_id()", "uuid_utils.uuid7()", HANDLE, "≥ 2.5"),
    Figure("bson.ObjectId() to sequence.next_id()", "bson.ObjectId()", HANDLE, "≥ 30"),
)
ITERATED = (Figure("for id in sequence, per id", "for id in sequence", NEXT, "≤ 1.5"),)
BULKS = (Figure("ids.next_ids(tag, 1000) to list(range)", "ids.next_ids(tag, 1000)", "list(range)", "≤ 1.5"),)
ON_THREADS = (Figure("8 threads to 1, per id", "8 threads", "1 thread", "≤ 1.3"),)
AWAITED = (Figure("await ids.next_id(tag) to an empty coroutine", "await ids.next_id(tag)", "await empty()", "≤ 2.5"),)


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


def awaited(runner: asyncio.Runner, words: str, count: int = 20_000, **names: object) -> Measure:
    """CPU of an awaited expression, with the same loop for all candidates."""
    source = f"async def measure(repeat, clock):\n began = clock()\n for _ in repeat: {words}\n return clock() - began"
    scope = dict(names)
    exec(source, scope)  # noqa: S102 - as timeit does: a call of a lambda would cost as much as what is measured
    measure: Any = scope["measure"]
    return lambda: runner.run(measure(repeat(None, count), time.process_time)) / count * 1e9


async def empty() -> None:
    pass


def peers() -> dict[str, Measure]:
    found = {}
    for words in PEERS:
        module = words.partition(".")[0]
        with suppress(ImportError):
            peer: Any = importlib.import_module(module)
            found[words] = statement(words, **{module: peer})
    return found


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    tag = place.tag("call")
    # Node numbers are never reused, so this run takes them from a database in memory, not from the user's.
    with Allocator(place.url, timeout=30) as ids, Allocator("sqlite://") as others, asyncio.Runner() as runner:
        sequence = ids.sequence(tag)
        for _ in range(6):  # until segments have grown to this rate
            for _ in islice(sequence, 300_000):
                pass
        names: dict[str, Any] = {"ids": ids, "sequence": sequence, "tag": tag}
        names |= {"meteor": Meteor(node=1), "snowflake": Snowflake(1, 1), "ObjectId": ObjectId}
        numbers, start = iter(range(10**12, 2 * 10**12)), 10**12
        call = {
            NEXT: statement("next(numbers)", numbers=numbers),
            HANDLE: statement("sequence.next_id()", **names),
            "ids.next_id(tag)": statement("ids.next_id(tag)", **names),
            "Meteor.next_id()": statement("meteor.next_id()", **names),
            "ids.meteor()": statement("ids.meteor()", ids=others),
            "Snowflake.next_id()": statement("snowflake.next_id()", **names),
            "ids.snowflake()": statement("ids.snowflake()", ids=others),
            "ObjectId()": statement("ObjectId()", **names),
            **peers(),
        }
        each = f"for _ in islice(zeros, {MANY}):"
        names |= {"islice": islice, "zeros": repeat(0), "numbers": numbers}
        iterated = {
            NEXT: statement(f"{each} next(numbers)", MANY, **names),
            "for id in sequence": statement(f"for _ in islice(sequence, {MANY}): pass", MANY, **names),
        }
        bulk = {
            "list(range)": statement(f"list(range(start, start + {BULK}))", BULK, start=start),
            "ids.next_ids(tag, 1000)": statement(f"ids.next_ids(tag, {BULK})", BULK, **names),
        }
        threads = {f"{n} thread{'s' if n > 1 else ''}": on_threads(sequence.next_id, n) for n in THREADS}
        coroutines = {
            "await empty()": awaited(runner, "await empty()", empty=empty),
            "await ids.next_id(tag)": awaited(runner, "await ids.next_id(tag)", ids=AsyncAllocator(ids), tag=tag),
        }
        yield [
            Race("call", "ns of CPU", call, CALL, loop=statement("pass")),
            Race(
                "call, iterated", "ns of CPU an id", iterated, ITERATED, loop=statement(f"{each} pass", MANY, **names)
            ),
            Race("call, 1000 at once", "ns of CPU an id", bulk, BULKS),
            Race("call, on threads", "ns an id", threads, ON_THREADS),
            Race("call, awaited", "ns of CPU", coroutines, AWAITED, loop=awaited(runner, "pass")),
        ]
