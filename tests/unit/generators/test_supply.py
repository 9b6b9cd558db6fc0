"""What a process makes of a database that is slow, away, or says no: an `Allocator` over one in memory.

Only public names: `Allocator` takes any backend, so `Source` stands behind its own face.
"""

import asyncio
import copy
import itertools
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from runpy import run_path
from typing import Any

import pytest
from support.distinct import distinct
from support.memory.database import Source
from support.processes.children import in_child
from support.processes.patience import until
from support.processes.threads import draw_on_threads
from support.rules import rule

from allocator import Allocator, AsyncAllocator
from allocator.errors import (
    AllocatorClosed,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidCount,
    InvalidSetting,
    MaxValueWentBack,
    NotCopyable,
    SchemaOutOfDate,
    UnknownTag,
)
from allocator.generators.meteor import MeteorSupply
from allocator.generators.supply import Terms
from allocator.runtime import iterators
from allocator.runtime.forks import exhaust
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.threads import THREADS, Background, Work
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.segment_refill import Segments
from allocator.schemes.shared.residues import ALL
from allocator.sync import Sequence

AWAY = DatabaseUnavailable("away")
PAUSE = "allocator.schemes.shared.retry_pace.RETRY_PAUSE"


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture(params=[True, False], ids=["threads", "no threads"])
def has_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Or claims are made where they are asked for, as when the interpreter ends."""
    if not request.param:
        monkeypatch.setattr("allocator.runtime.threads.start_thread", lambda *pool: False)
    return request.param


@pytest.fixture
def over(source: Source) -> Iterator[Callable[..., Allocator]]:
    """Makes allocators over it."""
    made: list[Allocator] = []

    def make(step: int = 1000, **settings: Any) -> Allocator:
        made.append(Allocator(source, **{"step": step, "max_step": step, **settings}))
        return made[-1]

    yield make
    source.gate.set()
    for ids in made:
        ids.close()


WAYS: dict[str, Callable[[Allocator], object]] = {
    "next_id": lambda ids: ids.next_id("order"),
    "next_ids": lambda ids: ids.next_ids("order", 10),
    "reserve": lambda ids: ids.reserve("order", 10),
    "handle": lambda ids: ids.sequence("order").next_id(),
    "loop": lambda ids: next(iter(ids.sequence("order"))),
    "async": lambda ids: asyncio.run(AsyncAllocator(ids).next_id("order")),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


# -- one supply for all


@pytest.mark.parametrize(("step", "each"), [(1, 50), (10, 1500), (1000, 5000)])
def test_threads_get_every_id_once_and_in_order(over, step, each):
    drawn = draw_on_threads(over(step).sequence("order").next_id, threads=8, each=each)

    assert list(range(1, 8 * each + 1)) == sorted(sum(drawn, []))
    assert all(ids == sorted(ids) for ids in drawn)


def test_all_ways_share_one_supply(over):
    ids = over()
    shared, endless = AsyncAllocator(ids).sequence("order"), iter(ids.sequence("order"))

    async def both() -> list[int]:
        return [await shared.next_id(), ids.next_id("order"), *(await shared.next_ids(2)), *(await shared.reserve(2))]

    assert [next(endless), ids.next_id("order"), *ids.next_ids("order", 2)] == [1, 2, 3, 4]
    assert asyncio.run(both()) == [5, 6, 7, 8, 1001, 1002]


def test_what_was_reserved_is_seen_by_the_next_claim_and_never_drawn(over, source):
    ids, drawn = over(10), []
    for _ in range(30):
        drawn += [*ids.reserve("order", 7), ids.next_id("order")]

    assert distinct(drawn)
    assert source.seen[1] == {ALL: 7}


def test_a_list_of_ids_is_one_claim(over, source):
    ids = over(10, max_step=1000)

    assert ids.next_ids("order", 500) == list(range(1, 501))
    assert asyncio.run(AsyncAllocator(ids).next_ids("order", 900)) == list(range(501, 1401))
    assert source.claims[0] == range(1, 501)
    assert len(source.claims) <= 3, "and the next ones are in advance"


def test_the_settings_of_the_tag_hold_for_the_first_claim_too(over, source):
    over(5).tags.create("order")
    ids = over(700)
    ids.reserve("order", 1), ids.next_id("order")

    assert source.claims == [range(1, 2), range(2, 7)]


# -- one sequence of each tag


def test_an_unknown_tag_is_refused_until_somebody_makes_it_and_its_handle_stays_the_same(over):
    ids = over(create_missing=False)
    handle = ids.sequence("order")
    for way in (lambda _: handle.next_id(), *WAYS.values()):
        with pytest.raises(UnknownTag):
            way(ids)
    assert ids.sequence("order") is handle

    over().next_id("order")
    assert [handle.next_id(), ids.next_id("order"), handle.next_id()] == [1001, 1002, 1003]


def test_a_signal_handler_makes_no_second_sequence_of_the_tag_that_is_being_made(over, monkeypatch):
    """Nobody would renew the second one in a forked child: it would repeat what its parent gives."""
    ids, make, found = over(), Sequence.__init__, []

    def interrupted(*words: Any) -> None:
        monkeypatch.setattr(Sequence, "__init__", make)
        found.append(ids.sequence("order"))
        make(*words)

    monkeypatch.setattr(Sequence, "__init__", interrupted)
    found += [ids.sequence("order"), ids.sequence("order")]

    assert len(set(found)) == 1
    assert found[0].next_id() == 1


# -- a database that is slow or away


def test_a_claim_is_made_in_advance_and_a_failure_is_logged_once(over, source, caplog):
    ids = over(100)
    ids.next_ids("order", 10)
    assert len(source.seen) == 1
    source.failing["order"] = AWAY
    assert ids.next_ids("order", 90) == list(range(11, 101))

    assert until(lambda: caplog.messages)
    assert caplog.messages == ["tag 'order': a claim failed; ids come from memory while they last: away"]
    assert len(source.seen) <= 3


@each_way
@pytest.mark.parametrize("error", [AWAY, None], ids=["away", "silent"])
def test_an_empty_memory_waits_no_longer_than_the_timeout_and_says_why(over, source, way, error, caplog):
    source.failing |= {"order": error} if error else {}
    source.gate.set() if error else source.gate.clear()
    words = "away" if error else r"tag 'order': the database did not answer within 0\.05 seconds"
    ids = over(timeout=0.05)
    for _ in range(6 if error else 1):
        with pytest.raises(DatabaseUnavailable, match=words):
            way(ids)
    source.gate.set()
    ids.close()

    assert caplog.messages == []  # nor does the end of a loop that is closed by now
    assert len(source.seen) <= 2  # one a second, and the calls may take longer on a busy machine


def test_a_name_that_failed_is_not_asked_for_again_before_its_retry_by_another_way(over, source, monkeypatch):
    for room in ("supply", "sequence"):
        monkeypatch.setattr(f"allocator.generators.{room}.monotonic", lambda: 100.0)
    for error in (DatabaseRefused("no"), SchemaOutOfDate("no tables")):
        source.failing["order"] = error
        for ways in itertools.product(WAYS.values(), repeat=2):
            source.seen.clear()
            ids = over()
            for way in ways:
                with pytest.raises(type(error)):
                    way(ids)
            assert len(source.seen) == 1, (error, ways)


def test_a_list_takes_no_longer_than_the_timeout_however_many_claims_it_needs(over, source, monkeypatch):
    """Each answer takes 0.8 seconds, and brings few ids: a node one, since its second field is at its end."""
    now, layout = [0.0], Layout(sign=1, second=29, node=20, sequence=1, random=13)
    monkeypatch.setattr("allocator.generators.supply.monotonic", lambda: now[0])
    monkeypatch.setattr("allocator.generators.meteor.time", lambda: layout.limit("second"))
    source.answered = lambda: now.append(now.pop() + 0.8)
    nodes = MeteorSupply(Terms(source, Background(), True, 60.0, 1.0), MeteorSettings(0, layout))
    for call in (
        lambda: over(10, timeout=1.0).next_ids("order", 1000),
        lambda: asyncio.run(nodes.several(1000)),
    ):
        now[:] = [0.0]
        with pytest.raises(DatabaseUnavailable, match="within 1 seconds; (9[0-9]{2}|1000) ids are still missing"):
            call()


def test_a_caller_whose_time_ends_in_a_second_attempt_learns_why_the_first_one_failed(over, source, monkeypatch):
    monkeypatch.setattr(PAUSE, 0.02)
    source.failing["order"] = DatabaseUnavailable("no connection to the database")
    source.answered = source.gate.clear
    with pytest.raises(DatabaseUnavailable, match="no connection to the database"):
        over(timeout=1.0).next_id("order")
    assert len(source.seen) == 2


def test_callers_of_a_failing_tag_leave_the_threads_to_a_sound_one(over, source, monkeypatch):
    """They ask the database no more before the pause has ended, and then each gets a block."""
    now = [0.0]
    monkeypatch.setattr("allocator.generators.sequence.monotonic", lambda: now[0])
    monkeypatch.setattr(PAUSE, 0.01)
    ids = over(timeout=60)
    source.failing["order"] = AWAY
    with pytest.raises(DatabaseUnavailable, match="away"):
        ids.reserve("order", 10)
    with ThreadPoolExecutor(2 * THREADS) as pool:
        calls = [pool.submit(ids.reserve, "order", 10) for _ in range(2 * THREADS)]
        assert ids.next_id("sound") == 1
        assert len(source.seen) == 2
        source.failing.clear()
        now[0] = 1.0
        assert distinct(number for call in calls for number in call.result(60)) == 20 * THREADS


# -- a database that says no


@each_way
def test_an_error_ends_a_call_and_the_next_one_goes_on(over, source, way, monkeypatch):
    monkeypatch.setattr(PAUSE, 0.0)
    ids = over()
    source.failing["order"] = SchemaOutOfDate("gone")
    with pytest.raises(SchemaOutOfDate):
        way(ids)
    source.failing.clear()

    assert way(ids) in (1, [*range(1, 11)], range(1, 11))


@each_way
@pytest.mark.parametrize("is_restored", [True, False])
def test_a_value_that_went_back_stops_every_way_and_what_is_in_memory(over, source, way, is_restored):
    ids = over(100)
    ids.next_ids("order", 5)
    if is_restored:
        source.rows["order"] = replace(source.rows["order"], max_value=50)
        words = "max_value is 50 in the database, but this process claimed ids up to 100"
    else:
        source.failing["order"], words = MaxValueWentBack("lowered"), "lowered"
    with pytest.raises(MaxValueWentBack, match=words):
        ids.reserve("order", 10)
    for _ in range(2):
        with pytest.raises(MaxValueWentBack):
            way(ids)


def test_what_does_not_fit_loses_nothing_and_a_raised_limit_is_noticed(over, source, monkeypatch):
    monkeypatch.setattr(PAUSE, 0.0)
    ids = over(limit=100, step=10)
    with pytest.raises(InvalidCount, match="at most 100, the ids left of tag 'order', got 101"):
        ids.reserve("order", 101)
    assert ids.reserve("order", 100) == range(1, 101)
    for way in WAYS.values():
        with pytest.raises(Exhausted, match="its last id, 100; raise its limit with"):
            way(ids)
    ids.tags.set("order", limit=110)

    assert ids.next_id("order") == 101


@pytest.mark.parametrize("error", [InvalidCount("at most 5"), Exhausted("5 left"), InvalidSetting("at most 9")])
def test_a_block_that_is_too_large_stops_no_smaller_one_and_no_id(over, source, error):
    ids = over()
    source.failing["order"] = error
    with pytest.raises(type(error)):
        ids.reserve("order", 10)
    source.failing.clear()
    assert (ids.next_id("order") > 0, len(ids.reserve("order", 1))) == (True, 1)


# -- interrupts, cancellation, close


@pytest.mark.parametrize(
    ("owner", "name", "next_one"),
    [(Background, "start", 1), (Work, "take", 1), (Source, "claim_segment", 1), (Segments, "committed", 1001)],
)
def test_an_interrupt_anywhere_in_a_claim_does_not_stop_the_tag(over, owner, name, next_one, has_threads, monkeypatch):
    """It is the caller's where it came in the caller, as where no thread can be had; else the claim failed."""
    left = threading.Event()

    def leave(*_: object, **__: object) -> None:
        left.set()
        raise SystemExit(3)

    monkeypatch.setattr(PAUSE, 0.0)
    ids = over(timeout=0.1)
    is_callers = not has_threads or name == "start"
    with monkeypatch.context() as interrupted:
        interrupted.setattr(owner, name, leave)
        with pytest.raises(SystemExit if is_callers else DatabaseUnavailable):
            ids.next_id("order")
        assert left.wait(10)  # on a busy machine the call may have ended before

    with suppress(DatabaseUnavailable):  # of a second attempt that had begun
        ids.next_id("order")
    assert ids.next_id("order") >= next_one


@pytest.mark.parametrize("call", ["next_id", "reserve"])
def test_a_cancelled_waiter_cancels_neither_the_claim_nor_the_others(over, source, call):
    source.gate.clear()
    ids = AsyncAllocator(over())
    words = ("order",) if call == "next_id" else ("order", 10)

    async def race() -> tuple[int, int]:
        impatient, patient = (asyncio.create_task(getattr(ids, call)(*words)) for _ in range(2))
        await asyncio.to_thread(source.asked.wait, 5)
        turns = [await asyncio.sleep(0) for _ in range(1000)]  # the loop goes on meanwhile
        impatient.cancel()
        with suppress(asyncio.CancelledError):
            await impatient
        source.gate.set()
        found = await patient
        return found if call == "next_id" else found[0], len(turns)

    first, turns = asyncio.run(race())
    assert first in ((1,) if call == "next_id" else (1, 11))  # what was reserved is burnt, whichever was first
    assert turns == 1000
    assert len(source.claims) <= (1 if call == "next_id" else 2)


def test_close_wakes_whoever_waits_and_nothing_comes_after_it(over, source):
    ids = over(timeout=30)
    endless = iter(ids.sequence("known"))
    assert next(endless) == 1
    source.gate.clear()
    with ThreadPoolExecutor(2 * THREADS + 1) as pool:
        calls = [pool.submit(ids.reserve, "order", 10) for _ in range(2 * THREADS)]
        assert source.asked.wait(5)
        pool.submit(ids.close)
        source.gate.set()
        assert isinstance(calls[-1].exception(20), AllocatorClosed)
    ids.close()
    for call in (*WAYS.values(), lambda _: next(endless), lambda ids: ids.next_id("known")):
        with pytest.raises(AllocatorClosed, match="closed; make a new one"):
            call(ids)


@rule(7, 11)
def test_of_the_memory_of_its_parent_a_child_keeps_the_watermark_alone(over, source):
    ids = over()
    ids.next_id("order")
    assert in_child(lambda: ids.next_id("order")) == "1001"
    source.rows["order"] = replace(source.rows["order"], max_value=500)

    assert in_child(lambda: ids.next_id("order")).startswith("MaxValueWentBack")
    assert ids.next_id("order") == 2


@rule(11)
@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(over, make_copy):
    ids = over()
    shared = AsyncAllocator(ids)
    for thing in (ids, ids.sequence("order"), shared, shared.sequence("order")):
        with pytest.raises(NotCopyable, match="both copies would issue the same ids"):
            make_copy(thing)


@rule(11)
@pytest.mark.parametrize("numbers", [range(100), range(2**63 - 50, 2**63)])
def test_nothing_is_left_for_a_loop_that_still_holds_the_ids_of_a_parent(numbers):
    """Python iterates over the last ids before 2**63 by another type."""
    held = iter(numbers)
    assert next(held) == numbers[0]
    exhaust(held)

    assert list(held) == []


# -- without the GIL, an iterator takes a lock


@pytest.mark.parametrize("numbers", [range(100), range(2**63 - 50, 2**63)])
def test_a_locked_iterator_is_emptied_at_once(numbers):
    """Whoever holds its lock, which in a forked child may be a thread that is gone; what it was made of stays."""
    raw = iter(numbers)
    values, holding, done = LockedIterator(raw), threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        holding.set()
        done.wait(60)
        yield from ()

    held = LockedIterator(slow())
    with ThreadPoolExecutor(2) as pool:
        pool.submit(lambda: [*held])
        assert holding.wait(60)
        held.empty(), values.empty()
        assert pool.submit(lambda: [*held, *values, -1]).result(60) == [-1]
        done.set()
    assert list(raw) == [*numbers]


def test_a_handler_may_draw_while_its_thread_holds_the_lock_of_an_iterator():
    class Interrupted(Iterator[int]):
        left = [1, 2]

        def __next__(self) -> int:
            return self.left.pop() + (next(values) if self.left else 0)

    values, found = LockedIterator(Interrupted()), []
    drawing = threading.Thread(target=lambda: found.append(next(values)), daemon=True)
    drawing.start(), drawing.join(10)

    assert found == [3]


@pytest.mark.parametrize("on", [True, False], ids=["on for an import", "off"])
def test_a_build_that_can_run_without_the_gil_locks(on, monkeypatch):
    monkeypatch.setattr(sys, "version", "3.14.0 free-threading build (main) [GCC 12.2.0]")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: on, raising=False)
    found, steps = run_path(iterators.__file__), []

    @contextmanager
    def lock() -> Iterator[None]:
        steps.append("lock")
        yield
        steps.append("unlock")

    monkeypatch.setattr(threading, "RLock", lock)
    values = found["iterator"](map(steps.append, range(5)))
    assert isinstance(values, found["LockedIterator"])
    found["take"](values, 3)

    assert steps == ["lock", 0, 1, 2, "unlock"]
