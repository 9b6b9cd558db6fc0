"""A leased worker number in a process: renewed by its thread, lost in time, given back once."""

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.processes.children import in_child
from support.processes.patience import until

from allocator.errors import DatabaseUnavailable, InvalidSetting, LeaseLost, NotCopyable
from allocator.generators import worker_numbers
from allocator.generators.supply import Terms
from allocator.generators.worker_numbers import AsyncWorkerLease, WorkerLease, Workers
from allocator.runtime.threads import Background
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease

LATE = DatabaseUnavailable("too late")


class Backend:
    """Leases number 3, and does as it is told."""

    def __init__(self) -> None:
        self.renewals: list[int] = []
        self.released: list[int] = []
        self.before_lease: Callable[[], object] = lambda: None
        self.before_renewal: Callable[[], object] = lambda: None
        self.failure: BaseException | None = None

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        self.before_lease()
        return NumberLease(claim.space, 3, claim.holder, claim.length_ms)

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self.before_renewal()
        self.renewals.append(wall_ms)
        if self.failure is not None:
            raise self.failure

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        self.released.append(used_ms)
        if self.failure is not None:
            raise self.failure


class Clock:
    """The machine's clocks, set by the test."""

    def __init__(self) -> None:
        self.now = Clocks(0.0, 1_800_000_000_000)

    def advance(self, own: float, wall: float) -> None:
        self.now = Clocks(self.now.own + own, self.now.wall_ms + int(1000 * wall))


class Hurried:
    """The module `threading` with conditions that wait a moment at most: so a thread sees the test's clock."""

    class Condition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(0.01)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


@pytest.fixture
def clock(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    workers.clocks = lambda: found.now
    monkeypatch.setattr(worker_numbers, "threading", Hurried())
    return found


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def workers(backend: Any) -> Iterator[Workers]:
    background = Background()
    made = Workers(Terms(backend, background, True, 60.0, 15.0), lambda: LATE)
    yield made
    made.close()
    background.close(1.0)


def lease(workers: Workers, seconds: float = 1.0, on_lost: Callable[[], object] | None = None) -> WorkerLease:
    return WorkerLease(workers, "pods", 10, seconds, on_lost)


def test_it_is_renewed_each_third_of_its_length(workers, backend, clock):
    """By the clock of the process, which the test moves on by 0.4 of the length at a time."""
    with lease(workers) as held:
        for times in (1, 2, 3, 4):
            clock.advance(0.4, 0.4)
            assert until(lambda times=times: len(backend.renewals) == times)
            assert held.number == 3
            assert not held.lost

    assert backend.renewals == [1_800_000_000_000 + one for one in (400, 800, 1200, 1600)]


def test_a_renewal_counts_from_before_its_request(workers, backend, clock):
    with lease(workers) as held:
        backend.before_renewal = lambda: clock.advance(0.2, 0.2)
        clock.advance(0.5, 0.5)
        assert until(lambda: held.left() == pytest.approx(0.8))


@pytest.mark.parametrize(("own", "wall"), [(1.0, 0.0), (0.0, 1.0), (60.0, 60.0), (0.0, -0.001)])
def test_it_is_lost_at_its_end_by_either_clock(workers, backend, clock, own, wall):
    """As for a process that was stopped, a machine that slept, a virtual machine that was paused, a clock set back."""
    told = threading.Event()
    with lease(workers, on_lost=told.set) as held:
        clock.advance(own, wall)
        assert held.lost
        assert held.left() <= 0
        assert told.wait(15)
        clock.advance(-own, -wall)
        assert held.lost, "for ever"

    assert backend.released == []


def test_it_is_told_in_time_while_a_renewal_hangs(workers, backend, clock):
    """In the driver, for minutes: only the answer of the database would end it."""
    hangs, answers, told = threading.Event(), threading.Event(), threading.Event()
    backend.before_renewal = lambda: (hangs.set(), answers.wait())
    try:
        with lease(workers, on_lost=told.set) as held:
            clock.advance(0.9, 0.9)
            assert hangs.wait(15)
            assert not held.lost
            clock.advance(0.1, 0.1)
            assert told.wait(15)
            assert held.lost
    finally:
        answers.set()


def test_a_loss_is_told_whatever_hits_the_thread_that_waits_for_it(workers, clock):
    told, failures = threading.Event(), [MemoryError("of a wait"), SystemExit("sent to the thread")]

    def clocks() -> Clocks:
        if failures and is_watching():
            raise failures.pop()
        return clock.now

    def is_watching() -> bool:
        return any(frame.name == "_watch" for frame in traceback.extract_stack())

    with lease(workers, on_lost=told.set):
        workers.clocks = clocks
        assert until(lambda: not failures)
        clock.advance(1.0, 1.0)
        assert told.wait(15)


FAILURES: dict[BaseException, str] = {
    DatabaseUnavailable("away"): "away",
    RuntimeError("of a driver"): "RuntimeError: of a driver",
    SystemExit("of a hook"): "SystemExit: of a hook",
}


@pytest.mark.parametrize(("failure", "said"), FAILURES.items(), ids=str)
def test_a_renewal_may_raise_anything(workers, backend, clock, caplog, failure, said):
    """It is tried again, and what ends unrenewed is told; giving it back may raise any error as well."""
    backend.failure, told = failure, threading.Event()
    with lease(workers, on_lost=told.set):
        for times, seconds in ((1, 0.4), (2, 0.1), (3, 0.1)):
            clock.advance(seconds, seconds)
            assert until(lambda count=times: len(backend.renewals) == count)
        clock.advance(0.4, 0.4)
        assert told.wait(15)
    assert f"number 3 of space 'pods' was not renewed: {said}" in caplog.text
    if isinstance(failure, Exception):
        backend.failure = None
        with lease(workers, 60):
            backend.failure = failure
        assert f"number 3 of space 'pods' was not given back: {said}" in caplog.text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "is_slow", [True, False], ids=["a handler that waits for a reader of a pipe", "one that fails"]
)
def test_no_log_delays_a_loss_or_ends_a_lease(workers, backend, clock, monkeypatch, is_slow):
    """Nor an error that cannot be printed."""
    read, told, failing = threading.Event(), threading.Event(), Unprintable("of a driver")
    handler = logging.Handler()
    handler.emit = lambda record: read.wait() if is_slow else str(failing)
    monkeypatch.setattr(logging.getLogger("allocator"), "handlers", [handler])
    backend.failure = failing
    try:
        with lease(workers, on_lost=told.set) as held:
            clock.advance(0.4, 0.4)
            assert until(lambda: backend.renewals)
            if not is_slow:
                backend.failure = None
                clock.advance(0.1, 0.1)
                assert until(lambda: held.left() > 0.9)
                backend.failure = failing
            clock.advance(1, 1)
            assert told.wait(15)
    finally:
        read.set()


def test_it_is_lost_when_the_database_says_so(workers, backend, clock, caplog):
    backend.failure, calls = LeaseLost("another has it"), []
    with lease(workers, on_lost=lambda: calls.append(threading.current_thread().name)) as held:
        clock.advance(0.4, 0.4)
        assert until(lambda: calls)
        assert held.lost

    assert (calls, backend.released) == (["allocator-worker"], [])
    assert until(lambda: "number 3 of space 'pods' is lost" in caplog.text)


def test_an_on_lost_that_fails_is_logged_and_the_others_are_told(workers, clock, caplog):
    failed, told = threading.Semaphore(0), threading.Event()
    with (
        lease(workers, on_lost=lambda: (failed.release(), sys.exit("of the application"))),
        lease(workers, on_lost=lambda: (failed.release(), {}["of the application"])),
        lease(workers, on_lost=told.set),
    ):
        clock.advance(1, 1)
        assert told.wait(15)
        assert failed.acquire(timeout=15)
        assert failed.acquire(timeout=15)
    assert until(lambda: caplog.text.count("on_lost of number 3 of space 'pods' failed") == 2)


def test_it_is_given_back_with_the_last_moment_of_its_use(workers, backend, clock):
    calls: list[None] = []
    with lease(workers, on_lost=lambda: calls.append(None)) as held:
        clock.advance(0.1, 0.3)
        assert not held.lost
        clock.advance(0.1, -0.2)
    held.close()

    assert backend.released == [1_800_000_000_400]
    assert (held.lost, calls) == (True, [])


def test_a_lease_that_ended_before_its_answer_came_is_given_back(workers, backend, clock):
    backend.before_lease = lambda: clock.advance(1, 1)
    with pytest.raises(DatabaseUnavailable, match="the lease of 1 s had ended when the answer came"):
        lease(workers).__enter__()

    assert until(lambda: backend.released)


def test_a_number_whose_caller_was_cancelled_is_given_back(workers, backend):
    asked, go_on = threading.Event(), threading.Event()
    backend.before_lease = lambda: (asked.set(), go_on.wait(15))

    async def lease_it() -> None:
        async with AsyncWorkerLease(workers, "pods", 10, 60, None):
            raise AssertionError("leased")

    async def cancelled() -> None:
        caller = asyncio.create_task(lease_it())
        assert await asyncio.to_thread(asked.wait, 15)
        caller.cancel()
        await caller

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    go_on.set()

    assert until(lambda: backend.released)


def test_a_forked_child_holds_nothing_and_gives_nothing_back(workers, backend):
    with lease(workers, 60) as held:
        assert in_child(lambda: (held.lost, held.close(), backend.released)) == "(True, None, [])"
        assert not held.lost


def test_a_child_that_was_forked_while_the_answer_came_holds_nothing(workers, backend, clock, monkeypatch):
    """As by a signal handler, which forks in the middle of the call."""
    parent, was_leased, was_forked = os.getpid(), [], []
    # There alone: the hooks of forks would take this process for a child for good.
    monkeypatch.setattr(worker_numbers, "os", SimpleNamespace(getpid=lambda: parent + bool(was_forked)))

    def forked_after_the_lease() -> Clocks:
        was_forked.extend(was_leased)
        return clock.now

    backend.before_lease = lambda: was_leased.append(True)
    workers.clocks = forked_after_the_lease
    with lease(workers) as held:
        assert held.lost
        for thread in threading.enumerate():
            if thread.name == "allocator-worker":
                thread.join()
    assert backend.renewals == backend.released == []


def test_it_is_entered_once_at_a_time_and_can_be_leased_again(workers, backend):
    made = lease(workers, 60)
    assert repr(made) == "<WorkerLease pods>"
    with pytest.raises(InvalidSetting, match="no number of space 'pods' is leased yet"):
        _ = made.number
    with pytest.raises(NotCopyable):
        made.__reduce_ex__(4)
    for times in (1, 2):
        with made as held:
            assert repr(made) == "<WorkerLease pods 3>"
            with pytest.raises(InvalidSetting, match="number 3 of space 'pods' is leased by this object already"):
                held.__enter__()
            assert (held.lost, len(backend.released)) == (False, times - 1)
        assert len(backend.released) == times


def test_without_a_thread_to_renew_it_no_number_is_leased(workers, backend, monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = lease(workers, 60)
    workers.terms.background.submit(lambda: None).result(15)  # whose thread is there already
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        made.__enter__()

    assert made.lost
    assert until(lambda: backend.released)
