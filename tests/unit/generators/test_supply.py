"""One tag driven from several threads, by both faces, over a database in memory."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from threading import Event, Thread
from typing import Any

import pytest
from support.distinct import distinct
from support.memory.database import MemorySource, sequence
from support.processes.patience import error_of
from support.processes.threads import draw_on_threads

from allocator import Allocator, AsyncAllocator, Meteor, Snowflake
from allocator.aio import AsyncSequence
from allocator.errors import (
    AllocatorClosed,
    DatabaseUnavailable,
    Exhausted,
    FleetGrowing,
    InvalidCount,
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
from allocator.runtime.thread_pool import THREADS, Background, Work
from allocator.runtime.waiting import wait_for
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.shared.residues import ALL
from allocator.schemes.tag import Tag
from allocator.sync import Sequence


def test_threads_get_every_id_once_and_in_order():
    for size, each in [(1, 50), (10, 1500), (1000, 5000)]:
        source = MemorySource(step=size, max_step=size)
        drawn = draw_on_threads(sequence(source).next_id, threads=8, each=each)

        assert list(range(1, 8 * each + 1)) == sorted(sum(drawn, [])), size
        assert all(ids == sorted(ids) for ids in drawn), size


def test_without_the_gil_an_iterator_takes_a_lock():
    values = LockedIterator(range(1, 5001))
    drawn = draw_on_threads(values.__next__, threads=5, each=1000)

    assert list(range(1, 5001)) == sorted(sum(drawn, []))


def test_iteration_and_single_calls_share_one_supply():
    ids = sequence(MemorySource())
    endless = iter(ids)

    assert [next(endless), ids.next_id(), next(endless), *ids.next_ids(2)] == [1, 2, 3, 4, 5]


def test_an_error_ends_a_loop_and_the_next_one_goes_on():
    source = MemorySource(step=1, max_step=1)
    ids = sequence(source)
    source.failure = SchemaOutOfDate("gone")
    with pytest.raises(SchemaOutOfDate):
        for _ in ids:
            pass
    source.failure = None
    ids._core.pace.clear()

    assert next(iter(ids)) == 1


def test_a_loop_finds_nothing_more_in_a_range_that_is_no_longer_ours():
    for iterator in [iter, LockedIterator]:
        for numbers in (range(100), range(2**63 - 50, 2**63)):
            values = iterator(numbers)
            next(values)
            exhaust(values)

            assert list(values) == [], iterator


def test_a_loop_ends_with_its_allocator():
    ids = sequence(MemorySource())
    endless = iter(ids)
    assert next(endless) == 1
    ids._background.close(5)
    ids._retire()

    with pytest.raises(AllocatorClosed):
        next(endless)


def test_a_loop_stops_when_the_row_went_back():
    source = MemorySource(step=1000, max_step=1000)
    ids = sequence(source)
    endless = iter(ids)
    next(endless)
    source.failure = MaxValueWentBack("restored")
    with pytest.raises(MaxValueWentBack):
        ids.reserve(5)

    with pytest.raises(MaxValueWentBack):
        next(endless)


def drain(ids) -> None:
    """Use up what is in memory, until the failure shows."""
    with pytest.raises((SchemaOutOfDate, DatabaseUnavailable)):
        for _ in range(100_000):
            ids.next_id()


def test_a_claim_is_made_in_the_background_at_low_water():
    source = MemorySource(step=100, max_step=100)
    ids = sequence(source)
    ids.next_ids(10)
    assert source.attempts == 1
    source.asked.clear()
    ids.next_id()

    assert source.asked.wait(5)
    assert source.attempts == 2


def test_ids_are_served_from_memory_while_the_database_is_away():
    source = MemorySource(step=100, max_step=100)
    ids = sequence(source)
    ids.next_id()
    source.failure = DatabaseUnavailable("away")

    assert list(range(2, 101)) == ids.next_ids(99)
    assert source.attempts <= 3


def test_an_empty_memory_waits_no_longer_than_the_timeout_and_says_why():
    source = MemorySource()
    source.failure = DatabaseUnavailable("no route to host")

    with pytest.raises(DatabaseUnavailable, match="no route to host"):
        sequence(source, timeout=0.05).next_id()


def test_a_database_that_never_answers_ends_in_a_timeout():
    source = MemorySource()
    source.gate.clear()
    ids = sequence(source, timeout=0.05)

    with pytest.raises(DatabaseUnavailable, match=r"tag 'order': the database did not answer within 0\.05 seconds"):
        ids.next_id()
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        ids.reserve(5)
    source.gate.set()


def test_a_claim_that_its_thread_could_not_begin_or_end_fails(monkeypatch: pytest.MonkeyPatch):
    for owner, where, first in ((Work, "take", 1), (Sequence, "_work", 1), (Sequence, "_granted", 1001)):
        ids = sequence(MemorySource(), timeout=60.0)
        with monkeypatch.context() as interrupted, pytest.raises(DatabaseUnavailable, match="failed with SystemExit"):
            interrupted.setattr(owner, where, leave)
            wait = ids._advance()
            raise wait.result(10)
        ids._core.pace.clear()

        assert ids.next_id() == first


def test_an_interrupt_as_a_claim_ends_in_its_caller_is_the_callers(monkeypatch: pytest.MonkeyPatch):
    """Where no thread can be had, it is the main thread that a signal handler interrupts."""
    monkeypatch.setattr("allocator.runtime.thread_pool.start_thread", lambda *pool: None)
    ids = sequence(MemorySource())
    with monkeypatch.context() as interrupted, pytest.raises(SystemExit):
        interrupted.setattr(type(ids), "_granted", leave)
        ids.next_id()

    assert ids.next_id() == 1001


def leave(*_: object) -> None:
    raise SystemExit(3)


class GatedSource(MemorySource):
    """Holds up the registration of nodes too."""

    def register_node(self) -> int:
        assert self.gate.wait(10)
        return super().register_node()


def test_a_list_of_ids_takes_no_longer_than_the_timeout(monkeypatch: pytest.MonkeyPatch):
    """Each answer takes 0.8 seconds, and brings few ids: a node one, since its second field is at its end."""
    layout = Layout(sign=1, second=29, node=20, sequence=1, random=13)
    now, at_end = 0.0, MeteorSettings(0, layout)
    monkeypatch.setattr("allocator.generators.supply.monotonic", lambda: now)
    monkeypatch.setattr("allocator.generators.meteor.time", lambda: layout.limit("second"))
    source = GatedSource(step=10, max_step=10)
    meteors = MeteorSupply(source, Background(), Terms(True, 60.0, 1.0), at_end, None)
    for supply in (sequence(source, timeout=1.0), meteors):
        source.gate.clear()
        now = 0.0
        with pytest.raises(DatabaseUnavailable, match=r"within 1 seconds; 9\d\d ids are still missing"):
            for answer, left in supply._completed([], 1000):
                assert left <= 1.0 - now
                source.gate.set()
                answer.result(10)
                source.gate.clear()
                now += 0.8
        source.gate.set()
        assert now == 1.6, supply


def test_a_list_of_ids_is_one_claim():
    for face in (Sequence.next_ids, lambda ids, count: asyncio.run(AsyncSequence(ids).next_ids(count))):
        source = MemorySource(step=10, max_step=1000)

        assert face(sequence(source), 1000) == list(range(1, 1001))
        assert source.claims[0] == range(1, 1001)


def test_a_caller_whose_time_ends_in_a_second_attempt_learns_why_the_first_one_failed(monkeypatch):
    source = MemorySource()
    source.failure = FleetGrowing("issues no ids while its fleet grows")
    monkeypatch.setattr("allocator.schemes.shared.retry_pace.RETRY_PAUSE", 0.02)
    ids = sequence(source, timeout=0.2)
    step = ids._advance()
    assert isinstance(step.result(5), FleetGrowing)
    source.gate.clear()

    with pytest.raises(FleetGrowing, match="issues no ids while its fleet grows"):
        ids.next_id()
    source.gate.set()


def test_failures_are_paced_whatever_the_callers_do():
    source = MemorySource()
    source.failure = SchemaOutOfDate("no table")
    ids = sequence(source)
    for _ in range(200):
        with pytest.raises(SchemaOutOfDate, match="no table"):
            ids.next_id()

    assert source.attempts <= 2  # one a second, and the calls may take longer on a busy machine


def test_a_failure_nobody_waits_for_is_logged_once(caplog: pytest.LogCaptureFixture):
    source = MemorySource(step=100, max_step=100)
    ids = sequence(source)
    ids.next_id()
    source.failure = DatabaseUnavailable("away")
    source.gate.clear()
    ids.next_ids(99)
    ended = ids._under_way
    source.gate.set()
    ended.result(5)

    assert caplog.messages == ["tag 'order': a claim failed; ids come from memory while they last: away"]


def test_an_unknown_tag_is_refused_until_somebody_makes_it():
    source = MemorySource()
    ids = sequence(source, create=False)
    with pytest.raises(UnknownTag):
        ids.next_id()
    with pytest.raises(UnknownTag):
        ids.reserve(1)
    sequence(source).next_id()

    assert ids.next_id() == 1001


def test_the_last_id_is_the_limit_and_then_nothing_for_ever():
    ids = sequence(MemorySource(step=100, max_step=100, limit=250))

    assert list(range(1, 251)) == ids.next_ids(250)
    for _ in range(2):
        with pytest.raises(Exhausted, match="its last id, 250"):
            ids.next_id()


def test_a_reservation_that_no_longer_fits_loses_nothing():
    source = MemorySource(limit=100)
    ids = sequence(source)
    with pytest.raises(InvalidCount, match="at most 100, the ids left of tag 'order', got 101"):
        ids.reserve(101)

    assert range(1, 101) == ids.reserve(100)
    with pytest.raises(Exhausted):
        ids.reserve(1)
    with pytest.raises(Exhausted):
        ids.next_id()


def test_a_value_that_went_back_stops_the_tag_and_what_is_in_memory():
    source = MemorySource(step=100, max_step=100)
    ids = sequence(source)
    ids.next_ids(5)
    source.rows["order"] = replace(source.rows["order"], max_value=50)
    with pytest.raises(
        MaxValueWentBack, match="max_value is 50 in the database, but this process claimed ids up to 100"
    ):
        ids.reserve(10)
    with pytest.raises(MaxValueWentBack):
        ids.next_id()


def test_reservations_and_single_ids_never_overlap():
    ids = sequence(MemorySource(step=10, max_step=10))
    seen: list[int] = []
    for _ in range(30):
        seen += [ids.next_id(), *ids.reserve(7)]

    assert distinct(seen)


# -- one process, two faces


def test_an_async_face_may_share_an_allocator():
    ids = sequence(MemorySource())
    shared = AsyncSequence(ids)

    async def both() -> list[int]:
        return [await shared.next_id(), ids.next_id(), *(await shared.next_ids(2)), *(await shared.reserve(2))]

    assert asyncio.run(both()) == [1, 2, 3, 4, 1001, 1002]


def test_many_tasks_on_two_loops():
    ids = AsyncSequence(sequence(MemorySource(step=10, max_step=10)))

    async def many() -> list[int]:
        return list(await asyncio.gather(*(ids.next_id() for _ in range(200))))

    assert list(range(1, 401)) == sorted(asyncio.run(many()) + asyncio.run(many()))


def test_a_cancelled_waiter_cancels_neither_the_claim_nor_the_others():
    source = MemorySource()
    source.gate.clear()
    ids = AsyncSequence(sequence(source))

    async def race() -> list[int]:
        impatient = asyncio.create_task(ids.next_id())
        patient = asyncio.create_task(ids.next_id())
        await asyncio.to_thread(source.asked.wait, 5)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        source.gate.set()
        return [await patient, await ids.next_id()]

    assert asyncio.run(race()) == [1, 2]
    assert source.attempts == 1


def test_a_cancelled_reservation_is_burnt():
    source = MemorySource()
    source.gate.clear()
    ids = sequence(source)

    async def cancel() -> None:
        task = asyncio.create_task(AsyncSequence(ids).reserve(10))
        await asyncio.to_thread(source.asked.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        source.gate.set()

    asyncio.run(cancel())
    ids._background.close(5)
    assert [range(1, 11)] == source.claims


def test_the_loop_goes_on_while_a_claim_is_under_way():
    source = MemorySource()
    source.gate.clear()
    ids = AsyncSequence(sequence(source))

    async def tick() -> int:
        waiting = asyncio.create_task(ids.next_id())
        await asyncio.to_thread(source.asked.wait, 5)
        turns = 0
        for _ in range(1000):
            await asyncio.sleep(0)
            turns += 1
        source.gate.set()
        assert await waiting == 1
        return turns

    assert asyncio.run(tick()) == 1000


def test_a_loop_that_ended_before_its_claim_is_no_error(caplog: pytest.LogCaptureFixture):
    source = MemorySource()
    source.gate.clear()
    ids = sequence(source, timeout=0.05)
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(AsyncSequence(ids).next_id())
    source.gate.set()
    ids._background.close(5)

    assert caplog.messages == []


# -- processes


def test_a_forked_child_owns_nothing():
    source = MemorySource()
    ids = sequence(source)
    ids.next_id()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        ids._background.renew()
        ids._forget()
        ids._renew()
        os.write(writer, f"{ids.next_id()}".encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 100) == b"1001"
    assert ids.next_id() == 2
    os.close(reader), os.close(writer)


def test_copies_are_refused(subtests):
    for make_copy in [copy.copy, copy.deepcopy, pickle.dumps]:
        with subtests.test(make_copy=make_copy):
            allocator = Allocator("sqlite://")
            shared = AsyncAllocator(allocator)
            for thing in (allocator, allocator.sequence("order"), shared, shared.sequence("order")):
                with pytest.raises(NotCopyable, match="both copies would issue the same ids"):
                    make_copy(thing)
            allocator.close()


def test_after_close_there_is_nothing():
    ids = Allocator("sqlite://")
    handle = ids.sequence("order")
    assert handle.next_id() == 1
    ids.close()
    ids.close()

    for call in (handle.next_id, lambda: ids.next_id("order"), lambda: ids.reserve("order", 5), ids.tags.list):
        with pytest.raises(AllocatorClosed, match="closed; make a new one"):
            call()


def test_close_wakes_whoever_waits():
    source = MemorySource()
    source.failure = DatabaseUnavailable("away")
    ids = sequence(source, timeout=30)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            ids.next_id()
        except AllocatorClosed as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert source.asked.wait(5)
    ids._background.close(5)
    thread.join(5)

    assert len(caught) == 1


def test_a_claim_runs_in_the_caller_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "allocator.runtime.thread_pool.start_thread", lambda *pool: None
    )  # as when the interpreter ends
    ids = sequence(MemorySource())

    assert ids.next_ids(2) == [1, 2]
    assert ids.reserve(2) == range(1001, 1003)
    assert ids._background._living() == 0


def test_a_signal_handler_may_draw_ids_of_another_tag():
    """The queue of the threads is reentrant: no deadlock, wherever the signal comes, if not in a call for that tag."""
    code = (
        "import signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.memory.database import MemorySource, sequence\n"
        "ids, other = sequence(MemorySource(step=1, max_step=1)), sequence(MemorySource(step=1, max_step=1), 'other')\n"
        "def handler(*_):\n"
        "    other.next_id()\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001)\n"
        "last = max(ids.next_id() for _ in range(1500))\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "print(last)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[2])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout == "1500\n"


def test_ctrl_c_between_deciding_and_claiming_does_not_stop_the_tag():
    source = MemorySource()
    ids = sequence(source)
    submit = ids._background.submit

    def interrupted(*args: object, **settings: object):
        ids._background.submit = submit
        raise KeyboardInterrupt

    ids._background.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        ids.next_id()
    ids._core.pace.clear()  # the second that follows a failure

    assert ids.next_id() == 1


def test_a_reservation_that_was_given_up_is_not_made_later():
    source = MemorySource()
    source.gate.clear()
    ids = sequence(source, timeout=0.02)
    for _ in range(THREADS + 3):
        with pytest.raises(DatabaseUnavailable):
            ids.reserve(10)
    source.gate.set()
    ids._background.close(5)

    assert len(source.claims) <= THREADS


def test_work_that_was_dropped_by_close_says_so():
    source = MemorySource()
    source.gate.clear()
    ids = sequence(source, timeout=30)
    waiting = [ids._start_claim(1, {}, True) for _ in range(THREADS + 2)]
    assert source.asked.wait(5)
    ids._background.close(0)
    source.gate.set()

    assert isinstance(error_of(waiting[-1]), AllocatorClosed)


def test_a_reservation_keeps_the_pace_after_a_failure():
    source = MemorySource()
    source.failure = DatabaseUnavailable("away")
    ids = sequence(source, timeout=0.05)
    for _ in range(5):
        with pytest.raises(DatabaseUnavailable):
            ids.reserve(10)

    assert source.attempts <= 2


def test_callers_of_a_failing_tag_wait_without_the_threads_of_a_sound_one(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    for module in ("generators.sequence", "runtime.thread_pool"):
        monkeypatch.setattr(f"allocator.{module}.monotonic", lambda: now)
    source = MemorySource()
    source.failure = DatabaseUnavailable("away")
    ids = sequence(source)
    with pytest.raises(DatabaseUnavailable, match="away"):
        ids.reserve(10)
    callers = [ids._claimed(10, {}, True) for _ in range(2 * THREADS)]
    for caller in callers:
        while (step := next(caller)) != (ids._background.closed, 1.0):  # a pause, and no work on a thread
            error_of(step[0])
    assert source.attempts == 1

    now, source.failure = 1.0, None
    assert distinct(number for caller in callers for number in wait_for(caller)) == 20 * THREADS


def test_a_call_whose_time_ends_in_a_pause_says_why(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    for module in ("generators.sequence", "runtime.thread_pool"):
        monkeypatch.setattr(f"allocator.{module}.monotonic", lambda: now)
    ids = sequence(MemorySource(), timeout=0.5)
    ids._core.refused(DatabaseUnavailable("away"), now)
    with pytest.raises(DatabaseUnavailable, match="away"):
        for work, seconds in ids._claimed(10, {}, True):
            if isinstance(work, Work):
                error_of(work)
            else:
                now += seconds
    assert now == 0.5


def test_what_was_reserved_is_seen_by_the_next_claim():
    ids = sequence(MemorySource())
    ids.reserve(10)

    assert ids._core.want(0.0).seen == {ALL: 10}


def test_a_block_is_refused_once_the_tag_is_stopped():
    ids = sequence(MemorySource())
    ids._core.stop(MaxValueWentBack("lowered"))
    with pytest.raises(MaxValueWentBack, match="lowered"):
        ids.reserve(10)


def test_a_child_keeps_the_watermark_and_nothing_else():
    ids = sequence(MemorySource())
    ids.next_id()
    lock = ids._lock
    lock.acquire()  # another thread of the parent held it when it forked
    ids._forget()
    ids._renew()

    assert ids._core.seen == {ALL: 1000}
    assert ids._lock is not lock
    assert ids.next_id() == 1001


def test_a_raised_limit_is_noticed():
    source = MemorySource(limit=3)
    ids = sequence(source)
    ids.next_ids(3)
    with pytest.raises(Exhausted, match="its last id, 3; raise its limit with"):
        ids.next_id()
    source.rows["order"] = replace(source.rows["order"], limit=10)
    ids._core.pace.clear()

    assert ids.next_id() == 4


def test_the_settings_of_the_tag_hold_for_the_first_claim_too():
    source = MemorySource(step=5, max_step=5)
    ids = sequence(source)
    source.failure = DatabaseUnavailable("away")
    with pytest.raises(DatabaseUnavailable):
        sequence(source, timeout=0.05).next_id()
    source.failure = None
    ids.reserve(1)
    ids.next_id()

    assert source.claims[:2] == [range(1, 2), range(2, 7)]


def test_a_second_handle_made_at_the_same_moment_does_not_hide_the_first():
    ids = Allocator("sqlite://")
    assert ids.next_id("order") == 1
    Sequence(Tag("order"), ids._backend.databases()[0], ids._background, ids._terms, ids._sequences)

    assert next(ids._serving["order"]) == 2
    ids.close()


@pytest.mark.parametrize("on", [True, False], ids=["on for an import", "off"])
def test_a_build_that_can_run_without_the_gil_locks(on: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version", "3.14.0 free-threading build (main) [GCC 12.2.0]")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: on, raising=False)
    found = run_path(iterators.__file__)

    assert isinstance(found["iterator"](range(3)), found["LockedIterator"])


def test_without_the_gil_several_values_take_the_lock_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version", "3.14.0 free-threading build (main) [GCC 12.2.0]")
    found = run_path(iterators.__file__)
    steps: list[object] = []

    @contextmanager
    def lock() -> Iterator[None]:
        steps.append("lock")
        yield
        steps.append("unlock")

    values = found["LockedIterator"](map(steps.append, range(5)))
    values._lock = lock()

    assert len(list(found["take"](values, 3))) == 3
    assert steps == ["lock", 0, 1, 2, "unlock"]


def test_a_handler_may_draw_while_its_thread_holds_the_lock_of_an_iterator():
    inside: list[int] = []
    others = LockedIterator(range(10, 20))

    class Handled(LockedIterator[int]):
        def __next__(self) -> int:
            with self._lock:
                inside.append(super().__next__())
                return super().__next__()

    drawn = Thread(target=lambda: inside.append(next(Handled(others))), daemon=True)
    drawn.start()
    drawn.join(10)

    assert inside == [10, 11]


def test_emptying_an_iterator_waits_for_no_thread_that_holds_its_lock():
    """As in a forked child, where the thread is gone."""
    values = LockedIterator(range(5))
    holding, done = Event(), Event()

    def hold() -> None:
        with values._lock:
            holding.set()
            done.wait(60)

    thread = Thread(target=hold, daemon=True)
    thread.start()
    holding.wait(60)
    exhaust(values)

    found: list[int] = []
    reader = Thread(target=lambda: found.extend([*values, -1]), daemon=True)
    reader.start()
    reader.join(10)
    done.set()
    assert found == [-1]


def test_emptying_an_iterator_leaves_alone_what_another_thread_may_be_advancing():
    raw = iter(range(5))
    exhaust(LockedIterator(raw))

    assert list(raw) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", [Meteor, Snowflake])
def test_what_a_call_holds_that_a_fork_interrupted_is_empty(kind: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("allocator.runtime.iterators.iterator", LockedIterator)
    made = kind(1)
    made.next_id()
    values = made._values
    made._forget()

    assert list(values) == []
