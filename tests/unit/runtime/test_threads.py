"""The threads of an allocator: what ends them, and what does not."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from unittest.mock import Mock
from weakref import WeakSet

import pytest
from support.processes.patience import error_of, until

from allocator.errors import AllocatorClosed, ForkedUnseen, ReentrantCall
from allocator.runtime import forks, threads
from allocator.runtime.threads import (
    THREADS,
    Background,
    Work,
    beside,
    has_ended,
    result_of,
    wait_for,
    wait_for_async,
)
from allocator.runtime.turns import Turns


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "allocator"}


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close(5)


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_call_that_ends_a_thread_costs_none(background):
    """As SystemExit out of a driver's hook."""
    for error in [SystemExit(3), asyncio.CancelledError()] * THREADS:
        assert error_of(background.submit(throw, error)) is error

    assert background.submit(lambda: "well").result(5) == "well"


def all_threads_of(background: Background) -> list[threading.Thread]:
    """So much work at one moment that all threads are started."""
    together = threading.Barrier(THREADS)
    for one in [background.submit(together.wait, 10) for _ in range(THREADS)]:
        one.result(10)
    return background._threads


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("error", "ends"), [(MemoryError, False), (GeneratorExit, True)])
def test_an_exception_that_is_sent_to_a_waiting_thread_takes_no_work_along(background, error, ends):
    """One that is no error ends the thread, as gevent and the interpreter want."""
    first = all_threads_of(background).copy()
    for thread in first:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))

    for _ in range(2 * THREADS):
        assert background.submit(lambda: "well").result(10) == "well"
    all_threads_of(background)
    assert until(lambda: all(map(has_ended, first)) is ends, 10)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_while_work_waits_is_replaced_at_once(background, monkeypatch):
    monkeypatch.setattr(threads, "run_first", once(GeneratorExit, threads.run_first))

    assert background.submit(lambda: "well").result(10) == "well"


def once(error: type[BaseException], then: Callable[..., object]) -> Callable[..., object]:
    """A function that raises an error at its first call."""
    errors = [error]

    def call(*args: object) -> object:
        if errors:
            raise errors.pop()
        return then(*args)

    return call


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next thread of an allocator gets an exception before it says that it has begun."""
    errors, bootstrap = [SystemExit], threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def kill(thread: threading.Thread) -> None:
        if thread.name == "allocator" and errors:
            thread._set_ident()  # type: ignore[attr-defined]
            raise errors.pop()
        bootstrap(thread)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", kill)
    monkeypatch.setattr(threads, "WAIT_SLICE", 0.01)


@pytest.mark.usefixtures("killed")
def test_a_thread_that_is_killed_before_its_first_step_holds_nobody_up(background):
    """`Thread.start` would wait for that step for ever."""
    left: list[Work[str]] = []
    threading.Thread(target=lambda: left.append(background.submit(lambda: "well")), daemon=True).start()

    assert until(lambda: bool(left), 10)
    assert until(lambda: all(map(has_ended, background._threads)), 10)
    assert [one.result(10) for one in (background.submit(lambda: "well"), *left)] == ["well"] * 2


@pytest.mark.usefixtures("killed")
def test_a_statement_whose_thread_is_killed_before_its_first_step_runs_here():
    results: list[str] = []
    threading.Thread(target=lambda: results.append(beside(lambda: "well")), daemon=True).start()

    assert until(lambda: bool(results), 10)


def test_without_a_second_thread_work_runs_on_the_first(background, monkeypatch):
    """Threads are limited, and the one that starts another may be the last."""
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        assert background.submit(lambda: "well").result(10) == "well"
        background.close(0)
        assert until(lambda: not background._threads, 10)


def test_an_exception_between_the_queue_and_the_work_loses_no_work(background, monkeypatch):
    monkeypatch.setattr(Work, "run", once(MemoryError, Work.run))

    assert background.submit(lambda: "well").result(10) == "well"


def test_who_keeps_an_error_keeps_nothing_that_its_frames_hold(background):
    """As a lock, which another thread could not release."""
    ended = list[str]()

    @contextmanager
    def held() -> Iterator[None]:
        try:
            yield
        finally:
            ended.append(threading.current_thread().name)

    def fail() -> None:
        manager = held()
        manager.__enter__()
        raise MemoryError  # as one that is sent to the thread before the `with` has begun

    error = error_of(background.submit(fail))
    assert isinstance(error, MemoryError)
    assert ended == ["allocator"]


class Alarmed(Work[int]):
    """A signal comes once somebody waits for it."""

    def when_done(self, call: Callable[[], object]) -> None:
        super().when_done(call)
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError("alarm")], ids=["ctrl-c", "alarm"])
def test_what_a_signal_handler_raises_in_a_wait_reaches_the_caller_and_takes_its_work_back(error):
    """A TimeoutError of an alarm is not the end of the wait."""
    work = Alarmed(lambda: 1)
    before = signal.signal(signal.SIGUSR1, partial(throw, error))
    try:
        with pytest.raises(type(error)) as caught:
            wait_for(result_of(lambda: work, Background(), 60.0, AllocatorClosed))
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert caught.value is error
    assert work.take() == []


def throw(error: BaseException, *_: object) -> None:
    raise error


def test_a_cancelled_call_takes_its_queued_work_back():
    work = Work(lambda: 1)

    async def cancel() -> None:
        call = asyncio.create_task(wait_for_async(result_of(lambda: work, Background(), 60.0, AllocatorClosed)))
        await asyncio.sleep(0)  # now it waits
        call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert work.take() == []


def test_the_threads_of_an_allocator_that_was_forgotten_end():
    before = ours()
    background = Background()
    background.submit(lambda: None).result(5)
    assert len(ours() - before) == 1
    del background
    gc.collect()

    assert until(lambda: not ours() - before, every=0.001)


def test_work_runs_with_the_context_variables_of_its_caller_and_keeps_none(background):
    """As a log filter reads them, or the tracing of a driver."""
    request = ContextVar("request", default="none")

    def change() -> str:
        before = request.get()
        request.set("changed by the work")
        return before

    token = request.set("a")
    assert background.submit(change).result(5) == "a"
    assert request.get() == "a"
    request.reset(token)
    assert background.submit(change).result(5) == "none"


# -- turns


class Callers:
    """Calls on threads of their own."""

    def __init__(self, pool: ThreadPoolExecutor, waits: list[None]) -> None:
        self.turns, self._pool, self._waits = Turns(), pool, waits

    def begin(self, work: Callable[[], object], count: int = 2) -> list[Future[object]]:
        """Those that wait when this returns."""
        before = len(self._waits)
        calls = [self._pool.submit(self.turns.run, work) for _ in range(count)]
        assert until(lambda: len(self._waits) == before + count, 10)
        return calls


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    waits: list[None] = []

    class Counted(Work[bool]):
        def result(self, seconds: float = 0.0) -> bool:
            waits.append(None)
            return super().result(seconds)

    monkeypatch.setattr("allocator.runtime.turns.Work", Counted)
    monkeypatch.setattr("allocator.runtime.turns.PATIENCE", 60.0)
    with ThreadPoolExecutor(4) as pool:
        yield Callers(pool, waits)


def test_calls_that_waited_share_the_next_run_and_no_earlier_one(callers):
    during: list[Future[object]] = []
    later: list[Future[object]] = []

    def second() -> str:
        later.extend(callers.begin(lambda: "third", 1))
        return "second"

    def first() -> str:
        during.extend(callers.begin(second))
        return "first"

    assert callers.turns.run(first) == "first"
    assert {call.result(60) for call in during} == {"second", None}
    assert later[0].result(60) == "third"


def test_those_that_waited_for_a_run_that_failed_run_at_once(callers):
    fails = Mock(side_effect=LookupError)
    calls = callers.turns.run(lambda: callers.begin(fails)) or []

    assert [type(call.exception(60)) for call in calls] == [LookupError] * 2
    assert fails.call_count == 2
    assert callers.turns.run(lambda: "alone") == "alone"


def test_a_run_that_stands_holds_up_nobody_for_ever(monkeypatch):
    """As one that waits for this very call, even on its own thread."""
    monkeypatch.setattr("allocator.runtime.turns.PATIENCE", 0.0)
    turns = Turns()

    assert turns.run(lambda: turns.run(lambda: "beside")) == "beside"


# -- what a forked child does before it gives an id


class Thing:
    """Fails each step as long as it has an error."""

    def __init__(self, done: list[str], error: BaseException | None = None) -> None:
        self.done, self.error = done, error

    def _supplies(self) -> list[Thing]:
        return [self]

    def _forget(self) -> None:
        self.does("forget")

    def after_fork(self) -> None:
        self.does("renew")

    def does(self, step: str) -> None:
        self.done.append(step)
        if self.error:
            raise self.error


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """The steps in their order, in a process that is not the one that was seen last."""
    done: list[str] = []
    monkeypatch.setattr(forks, "process", 0)
    monkeypatch.setattr(forks, "callbacks", [lambda: done.append("call")])
    return done


def test_all_ids_are_forgotten_before_anything_is_renewed(done, monkeypatch):
    things = [Thing(done) for _ in range(3)]
    monkeypatch.setattr(forks, "alive", WeakSet(things))
    forks.renew_all()

    assert done == ["forget"] * 3 + ["call"] + ["renew"] * 3
    assert not forks.catch_up()


def test_a_handler_that_draws_in_the_middle_of_a_late_renewal_is_refused_and_waits_for_nothing(done, monkeypatch):
    def handler() -> None:
        with pytest.raises(ReentrantCall):
            forks.catch_up()
        done.append("refused")

    thing = Thing(done)
    monkeypatch.setattr(forks, "alive", WeakSet([thing]))
    monkeypatch.setattr(forks, "callbacks", [handler])

    assert forks.catch_up()
    assert done == ["forget", "refused", "renew"]


@pytest.mark.parametrize("error", [RuntimeError("not well"), KeyboardInterrupt("not well")])
def test_a_failure_stops_no_other_step_and_the_process_gives_no_ids_until_all_succeed(done, monkeypatch, error):
    things = [Thing(done, error), Thing(done, error)]
    monkeypatch.setattr(forks, "alive", WeakSet(things))
    refusal = ForkedUnseen if isinstance(error, Exception) else type(error)
    with pytest.raises(type(error), match="not well"):
        forks.renew_all()
    for _ in range(2):
        with pytest.raises(refusal, match="not well"):
            forks.catch_up()

    assert done == (["forget"] * 2 + ["call"] + ["renew"] * 2) * 3
    for thing in things:
        thing.error = None
    assert forks.catch_up()
    assert forks.process == os.getpid()
