"""The threads on which every claim runs, and how a caller waits for them: blocking, or awaiting.

Nothing in here takes a lock that an exception could leave taken: who calls and who runs append to lists, which signal
handlers and destructors may do at any moment. The threads are daemons, so that a hanging claim does not delay the exit
of the interpreter, as it would in a `ThreadPoolExecutor`.

Waiting in SQLAlchemy's greenlet does not block its event loop: an `AsyncSession` calls column defaults and hooks in a
greenlet that awaits on their behalf, and waiting code awaits there too. `sys.modules` tells whether
SQLAlchemy and greenlet are imported; without them there is no such greenlet.
"""

from __future__ import annotations

import queue
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from traceback import clear_frames
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from allocator.errors import AllocatorClosed, AllocatorError, DatabaseUnavailable, InvalidSetting
from allocator.runtime.forks import catch_up, check_not_ending

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""A thread waits for one answer at a time. More than a database has connections, since a fleet has several."""
WAIT_SLICE = 1.0
"""A waiting call looks again once a second: Python handles a signal that came just before the wait only afterwards."""


class Work(Generic[T]):
    """A call that runs at most once, with the context variables of who makes it, for log filters and tracing.

    ended: the result and the error of each end, of which the first counts; empty until then.
    """

    __slots__ = ("_calls", "_waiting", "ended", "is_queued")

    def __init__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        self._calls = [partial(copy_context().run, call, *args, **kwargs)]
        self._waiting: list[Callable[[], object]] = []
        self.ended: list[tuple[Any, BaseException | None]] = []
        self.is_queued = False

    def take(self) -> list[Callable[[], T]]:
        """The call, for the first who takes it.

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

    def cancel(self, error: BaseException | None = None) -> None:
        """Do not begin it, and tell who waits for it why not. If it has begun, it runs on."""
        if self.take() and error is not None:
            self.end(error=error)

    def end(self, result: T | None = None, error: BaseException | None = None) -> None:
        self.ended.append((result, error))
        while self._waiting:
            with suppress(IndexError):  # another thread took the last one
                self._waiting.pop()()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call `call` once it is done, on the thread that ends it; at once if it is done already."""
        self._waiting.append(call)
        if self.ended:
            self.end()

    def forget(self, call: Callable[[], object]) -> None:
        with suppress(ValueError):
            self._waiting.remove(call)

    def result(self, seconds: float = 0.0) -> T:
        """The result of what is done within `seconds`. Raises its error, or `TimeoutError`."""
        end = monotonic() + seconds
        while not self.ended and (left := end - monotonic()) > 0:
            block(self, left)
        if not self.ended:
            raise TimeoutError
        result, error = self.ended[0]
        if error is not None:
            raise error
        return cast("T", result)


# ---- the pool

Works = SimpleQueue[Work[Any] | None]
"""None stops the threads: each leaves it to the others."""


class Background:
    """A pool of up to `THREADS` threads, started on demand."""

    def __init__(self) -> None:
        self.closed = Work(int)
        """Ends when the pool is closed."""
        self._start()

    def _start(self) -> None:
        self.idle: Work[Any] = Work(int)
        """Done, and shared by all supplies without a request under way."""
        self.idle.end()
        self.idle.is_queued = True
        self._works: Works = queue.SimpleQueue()  # looked up late, for a patch by gevent
        self._finalizer = weakref.finalize(self, self._works.put, None)
        self._finalizer.atexit = False
        self._threads: list[threading.Thread] = []

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Work[T]:
        if self.closed.ended:
            raise AllocatorClosed
        check_not_ending()
        work = Work(call, *args, **kwargs)
        self.start(work)
        return work

    def start(self, work: Work[Any]) -> None:
        """Queue the work for a thread; run it here if no thread can start, as at interpreter shutdown.

        A signal handler that comes in between may queue the same work: only one of both then runs.
        """
        self._works.put(work)
        living = sum(thread.is_alive() for thread in self._threads)
        if living < THREADS and not self._works.empty() and (thread := start_thread(self._works)):
            self._threads.append(thread)
            living += 1
        work.is_queued = True
        if not living:
            work.run()
        if self.closed.ended:
            work.cancel(AllocatorClosed())  # the pool was closed just now, and its threads may all have ended

    def close(self, seconds: float) -> None:
        """Drop queued work, and wait at most `seconds` for running work."""
        self.closed.end()
        with suppress(Empty):
            while True:
                if work := self._works.get_nowait():
                    work.cancel(AllocatorClosed())
        self._works.put(None)
        end = monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))

    def renew(self) -> None:
        """Start a new pool in a forked child, which has none of the parent's threads."""
        was_closed, self.closed = self.closed.ended, Work(int)
        if was_closed:
            self.closed.end()
        self._finalizer.detach()
        self._start()


def start_thread(works: Works) -> threading.Thread | None:
    """Start a thread that runs them; None if none can start."""
    thread = threading.Thread(target=run_all, args=(works,), name="allocator", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
        return None
    return thread


def run_all(works: Works) -> None:
    while (work := works.get()) is not None:
        with suppress(
            BaseException
        ):  # the work holds the error, even CancelledError of a driver's hook, for its waiter
            work.run()
        del work  # an idle thread keeps no call, nor what its error holds
    works.put(None)


def takes_signals() -> bool:
    """Whether signal handlers run on this thread."""
    return threading.current_thread() is threading.main_thread()


def beside(call: Callable[[], T]) -> T:
    """Run `call` on a thread of its own, where nothing interrupts it, and wait for it; here if no thread can start."""
    work, works = Work(call), queue.SimpleQueue[Work[Any] | None]()
    works.put(work)
    works.put(None)
    # As the interpreter ends, a thread would never say that it has begun.
    if sys.is_finalizing() or not start_thread(works):
        work.run()
    return work.result(inf)


# ---- waiting

Waits = Generator[tuple[Work[Any], float], None, T]
"""A call that waits: it yields what to wait for, and for how many seconds at most, and returns its result."""


def result_of(
    start: Callable[[], Work[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> Waits[T]:
    """Wait for the work that `start` begins. A result that comes after `seconds`, or for a cancelled call, is burnt.

    Work that must pause, as before a retry, ends with an error that says for how long. The caller waits here, and
    begins the work again: threads of the pool do not wait, since the work of others needs them.
    """
    end = monotonic() + seconds
    while True:
        catch_up()
        work = start()
        try:
            while not work.ended:
                if (left := end - monotonic()) <= 0:
                    raise overdue()
                yield work, left
        finally:
            work.cancel()
        _, error = work.ended[0]
        pause = min(error.pause, end - monotonic()) if isinstance(error, DatabaseUnavailable) else 0.0
        if pause <= 0:
            return work.result()
        yield background.closed, pause


def wait_for(waits: Waits[T]) -> T:
    """Run `waits` to its result, and block this thread at each wait; inside SQLAlchemy's greenlet, await."""
    try:
        while True:
            block(*next(waits))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        waits.close()


@coroutine
def wait_for_async(waits: Waits[T]) -> Generator[Any, Any, T]:
    """Run `waits` to its result without blocking the loop.

    Not `async def`: Python warns of a coroutine that Ctrl-C drops before its first step.
    """
    try:
        while True:
            yield from wait_async(*next(waits))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        waits.close()


def bridge() -> Callable[[Awaitable[Any]], Any] | None:
    """SQLAlchemy's function that awaits for blocking code, inside its greenlet; None elsewhere."""
    concurrency, greenlet = sys.modules.get("sqlalchemy.util.concurrency"), sys.modules.get("greenlet")
    # The main greenlet of a thread has no parent. SQLAlchemy recurses without end where two threads ask it first.
    if concurrency is None or greenlet is None or greenlet.getcurrent().parent is None or not concurrency.in_greenlet():
        return None
    await_only: Callable[[Awaitable[Any]], Any] = concurrency.await_only
    return await_only


def block(work: Work[Any], seconds: float) -> None:
    """Block until it is done, with or without an error; may return before `seconds`."""
    if await_only := bridge():
        await_only(wait_async(work, seconds))
        return
    ended: SimpleQueue[None] = queue.SimpleQueue()
    wake = partial(ended.put, None)
    work.when_done(wake)
    with suppress(Empty):
        ended.get(timeout=min(seconds, WAIT_SLICE))
    work.forget(wake)


async def wait_async(work: Work[Any], seconds: float) -> None:
    """As `block`, but in the loop. Cancelling the waiter does not stop the work."""
    import asyncio

    loop, ended = running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    work.when_done(wake)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(seconds, WAIT_SLICE))
    finally:
        work.forget(wake)


def running_loop() -> AbstractEventLoop:
    """Raises `InvalidSetting` where another library runs coroutines, such as trio."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidSetting(
            "AsyncAllocator is for asyncio, and no loop of asyncio runs here; with trio use an Allocator, as in "
            "await trio.to_thread.run_sync(ids.next_id, 'order')"
        ) from None


async def to_thread(work: Callable[[], T]) -> T:
    """The result of blocking `work`, on a thread of asyncio."""
    return await running_loop().run_in_executor(None, copy_context().run, work)


async def result_async(work: Work[T]) -> T:
    """The result, however long it takes."""
    while not work.ended:
        await wait_async(work, WAIT_SLICE)
    return work.result()
