"""The thread pool of an allocator: every claim runs on one of its threads.

The work waits in a deque, and a `SimpleQueue` calls a thread for each: their `append` and `put` are safe in signal
handlers and destructors. If an exception that was sent to a thread, or a MemoryError, hits it as it waits, the call is
lost, and not the work, which leaves the deque only once a thread has taken it. The threads are daemons, so that a
hanging claim does not delay the exit of the interpreter; the range it may still get is burnt.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from time import monotonic
from traceback import clear_frames
from typing import Any, ParamSpec, TypeVar

from allocator.errors import AllocatorClosed, AllocatorError, DatabaseUnavailable, ReentrantCall
from allocator.runtime.forks import catch_up
from allocator.runtime.waiting import WAIT_SLICE, Outcome, Waits, block

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""A thread waits for one answer at a time. More than a database has connections, since a fleet has several."""


class Work(Outcome[T]):
    """A call that runs at most once, with the context variables of who makes it, for log filters and tracing."""

    __slots__ = ("_calls", "is_queued")

    def __init__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        super().__init__()
        self.is_queued = False
        self._calls = [partial(copy_context().run, call, *args, **kwargs)]

    def take(self) -> list[Callable[[], T]]:
        """The call, for the first who takes it: without a worker thread the submitter runs it, and it stays queued.

        In a list, since the traceback of a kept error holds the frame of `run`, which must not hold the call and with
        it the context of its caller.
        """
        try:
            return [self._calls.pop()]
        except IndexError:
            return []

    def run(self) -> None:
        """End by the call, or by whatever else comes up in here: somebody waits for it."""
        try:
            if taken := self.take():
                self.end(taken.pop()())
        except BaseException as error:
            self._calls.clear()  # the error may have come before the call was taken
            clear_frames(error.__traceback__)  # who keeps the error keeps no lock that one of its frames holds
            self.end(error=error)
            if not isinstance(error, Exception):
                raise

    def cancel(self) -> None:
        """Do not begin it: nobody waits for it. If it has begun, it runs on."""
        self._calls.clear()

    def drop(self, error: BaseException) -> None:
        if self.take():
            self.end(error=error)


class Background:
    """A pool of up to `THREADS` threads, started on demand."""

    def __init__(self) -> None:
        self.closed: Outcome[None] = Outcome()
        self._start()

    def _start(self) -> None:
        self.idle: Work[Any] = Work(int)
        """Done, and shared by all supplies without a request under way."""
        self.idle.end()
        self.idle.is_queued = True
        self._works: deque[Work[Any]] = deque()
        self._calls: SimpleQueue[bool] = queue.SimpleQueue()  # looked up late, for a patch by gevent
        self._finalizer = weakref.finalize(self, self._calls.put, False)
        self._finalizer.atexit = False
        self._threads: list[threading.Thread] = []

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Work[T]:
        if self.closed.done():
            raise AllocatorClosed
        check_not_ending()
        work = Work(call, *args, **kwargs)
        self.start(work)
        return work

    def start(self, work: Work[Any]) -> None:
        """Queue the work for a thread; run it here if no thread can start, as at interpreter shutdown.

        A signal handler that comes in between may queue the same work: only one of both then runs.
        """
        self._works.append(work)
        self._calls.put(True)
        if self._living() < THREADS and not self._calls.empty():
            start_thread(self._threads, run_all, self._threads, self._works, self._calls)
        work.is_queued = True
        if not self._living():
            work.run()
        if self.closed.done():
            work.drop(AllocatorClosed())  # the pool was closed just now, and its threads may all have ended

    def _living(self) -> int:
        return len(self._threads) - sum(map(has_ended, self._threads))

    def close(self, seconds: float) -> None:
        """Drop queued work, and wait at most `seconds` for running work."""
        self.closed.end()
        drop(self._works, AllocatorClosed())
        self._calls.put(False)
        end = monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))

    def renew(self) -> None:
        """Start a new pool in a forked child, which has none of the parent's threads."""
        was_closed = self.closed.done()
        self.closed = Outcome()
        if was_closed:
            self.closed.end()
        self._finalizer.detach()
        self._start()


def start_thread(threads: list[threading.Thread], target: Callable[..., None], *args: object) -> None:
    """Start a thread, and do not wait for its first step. Without effect if no thread can start.

    `Thread.start` waits for that step, for ever if an exception that was sent to the thread comes before. So a thread
    of its own calls it.
    """
    thread = threading.Thread(target=target, args=args, name="allocator", daemon=True)
    threads.append(thread)
    try:
        _thread.start_new_thread(begin, (thread, threads))
    except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
        threads.remove(thread)


def begin(thread: threading.Thread, threads: list[threading.Thread]) -> None:
    try:
        thread.start()
    except RuntimeError:  # the thread limit is reached with this one
        thread.run()
        threads.remove(thread)


def has_ended(thread: threading.Thread) -> bool:
    return thread.ident is not None and not thread.is_alive()


def run_all(threads: list[threading.Thread], works: deque[Work[Any]], calls: SimpleQueue[bool]) -> None:
    """Run work at each call, until the call to stop, which is False."""
    is_open = True
    try:
        while is_open:
            with suppress(Exception, SystemExit, KeyboardInterrupt):
                while works:  # first of all: an exception may have come in place of a call
                    run_first(works)
                is_open = calls.get()
    finally:
        calls.put(is_open)  # the call to stop, or one that this thread leaves to the others
        if is_open and works:
            start_thread(threads, run_all, threads, works, calls)


def run_first(works: deque[Work[Any]]) -> None:
    """Run the first work. It stays queued until it is taken: an exception that hits this thread loses none."""
    work = works[0]
    with suppress(BaseException):  # the work holds the error, even CancelledError of a driver's hook, for its waiter
        work.run()
        works.remove(work)  # ValueError: another thread saw that it was taken


def drop(works: deque[Work[Any]], error: BaseException) -> None:
    with suppress(IndexError):  # a thread may take the last one
        while works:
            works.popleft().drop(error)


def result_of(
    start: Callable[[], Work[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> Waits[T]:
    """Wait for the work that `start` begins. A result that comes after `seconds`, or for a cancelled call, is burnt.

    Work that must pause, as before a retry, ends with an error that says for how long. The caller waits here, and
    begins the work again: threads of the pool do not wait, since the work of others needs them.
    """
    end = monotonic() + seconds
    while True:
        try:
            return (yield from answer_of(start, end, overdue))
        except DatabaseUnavailable as error:
            if not error.pause:
                raise
            late = error.again()
            pause = min(error.pause, end - monotonic())
        if pause <= 0:
            raise late
        yield background.closed, pause


def answer_of(start: Callable[[], Work[T]], end: float, overdue: Callable[[], AllocatorError]) -> Waits[T]:
    """Wait until `end` for the work that `start` begins, which may also end with a pause."""
    catch_up()
    work = start()
    try:
        while not work.done():
            if (left := end - monotonic()) <= 0:
                raise overdue()
            yield work, left
    finally:
        work.cancel()
    return work.result()


def takes_signals() -> bool:
    """Whether signal handlers run on this thread."""
    return threading.current_thread() is threading.main_thread()


def beside(call: Callable[[], T]) -> T:
    """Run `call` on a thread of its own, where nothing interrupts it, and wait for it; here if no thread can start."""
    if sys.is_finalizing():  # a thread would never say that it has begun
        return call()
    work, threads = Work(call), list[threading.Thread]()
    start_thread(threads, run_first, deque([work]))
    if not threads:
        work.run()
    while not work.done():
        block(work, WAIT_SLICE)
        if all(map(has_ended, threads)):  # by an exception that was sent to it before it took the work, or after
            work.run()
            work.end(error=DatabaseUnavailable("somebody sent an exception to the thread of this call; retry"))
    return work.result()


def check_not_ending() -> None:
    """Raise `AllocatorClosed` during interpreter shutdown: threads are gone, and may have left locks taken."""
    if sys.is_finalizing():
        raise AllocatorClosed(
            "no ids can be drawn during interpreter shutdown; draw them earlier, for example in an atexit function"
        )


def is_held_here(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock: then a signal handler or destructor interrupted the holder.

    `threading.Condition` uses the same private method.
    """
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def check_entry(lock: threading.RLock, name: str) -> None:
    """Raise where waiting for `lock` could never end; `name` begins the message."""
    check_not_ending()
    if is_held_here(lock):
        raise reentrant_call(name)


def reentrant_call(name: str) -> AllocatorError:
    return ReentrantCall(
        f"{name}: a signal handler or destructor asked for an id while it interrupted a call for the same ids; "
        "draw ids outside of signal handlers and destructors"
    )
