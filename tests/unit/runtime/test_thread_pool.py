"""The threads of an allocator: what ends them, and what does not."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import pytest
from support.processes.patience import error_of

from allocator.errors import AllocatorClosed
from allocator.runtime import thread_pool
from allocator.runtime.thread_pool import THREADS, Background, Work, result_of
from allocator.runtime.waiting import wait_for, wait_for_async


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "allocator"]


def test_a_call_that_ends_a_thread_costs_none():
    """As SystemExit out of a driver's hook."""
    background = Background()

    def fail(error: BaseException) -> None:
        raise error

    for error in [SystemExit(3), asyncio.CancelledError()] * THREADS:
        assert error_of(background.submit(fail, error)) is error

    assert background.submit(lambda: "well").result(5) == "well"
    background.close(5)


def all_threads_of(background: Background) -> list[threading.Thread]:
    """So much work at one moment that all threads are started."""
    together = threading.Barrier(THREADS)
    for one in [background.submit(together.wait, 10) for _ in range(THREADS)]:
        one.result(10)
    return background._threads


def test_an_exception_that_is_sent_to_a_waiting_thread_takes_no_work_along():
    background = Background()
    for thread in all_threads_of(background):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError))

    for _ in range(2 * THREADS):
        assert background.submit(lambda: "well").result(10) == "well"
    background.close(5)


def test_threads_that_died_are_replaced(monkeypatch):
    background = Background()
    with monkeypatch.context() as dying:
        dying.setattr("allocator.runtime.thread_pool.run_all", lambda *_: None)
        left = [background.submit(lambda: "well") for _ in range(THREADS)]
    for thread in background._threads:
        thread.join(10)

    assert [one.result(10) for one in [background.submit(lambda: "well"), *left]] == ["well"] * (THREADS + 1)
    background.close(5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_while_work_waits_is_replaced_at_once(monkeypatch):
    background = Background()
    monkeypatch.setattr(thread_pool, "run_first", once(GeneratorExit, thread_pool.run_first))

    assert background.submit(lambda: "well").result(10) == "well"
    background.close(5)


def once(error: type[BaseException], then: Callable[..., object]) -> Callable[..., object]:
    """A function that raises an error at its first call."""
    errors = [error]

    def call(*args: object) -> object:
        if errors:
            raise errors.pop()
        return then(*args)

    return call


def test_an_exception_between_the_queue_and_the_work_loses_no_work(monkeypatch):
    background = Background()
    monkeypatch.setattr(Work, "run", once(MemoryError, Work.run))

    assert background.submit(lambda: "well").result(10) == "well"
    background.close(5)


def test_work_that_cannot_begin_ends_with_the_error(monkeypatch, caplog):
    background = Background()
    with monkeypatch.context() as short:
        short.setattr(Work, "take", leave)
        lost = background.submit(lambda: "well")
        with pytest.raises(SystemExit):
            lost.result(10)
    assert background.submit(lambda: "well").result(10) == "well"
    background.close(5)
    assert not caplog.messages


def leave(*_: object) -> None:
    raise SystemExit


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
    before = set(ours())
    background = Background()
    background.submit(lambda: None).result(5)
    assert len(set(ours()) - before) == 1
    del background
    gc.collect()
    deadline = time.monotonic() + 5
    while set(ours()) - before and time.monotonic() < deadline:
        threading.Event().wait(0.001)

    assert not set(ours()) - before


def test_work_runs_with_the_context_variables_of_its_caller_and_keeps_none():
    """As a log filter reads them, or the tracing of a driver."""
    request = ContextVar("request", default="none")
    background = Background()

    def change() -> str:
        before = request.get()
        request.set("changed by the work")
        return before

    token = request.set("a")
    assert background.submit(change).result(5) == "a"
    assert request.get() == "a"
    request.reset(token)
    assert background.submit(change).result(5) == "none"
    background.close(5)
