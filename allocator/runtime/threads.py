"""The threads on which every claim runs, and how a caller waits for them: blocking, or awaiting.

Nothing in here takes a lock that an exception could leave taken: threads, signal handlers and destructors append to
lists and deques, and a `SimpleQueue` calls a thread for each work. If an exception that was sent to a thread, or a
MemoryError, hits it as it waits, the call is lost, and not the work, which leaves the deque only once a thread has
taken it. The threads are daemons, so that a hanging claim does not delay the exit of the interpreter.

Waiting in SQLAlchemy's greenlet does not block its event loop: an `AsyncSession` calls column defaults and hooks in a
greenlet that awaits on their behalf, and waiting code awaits there too. `sys.modules` tells whether
SQLAlchemy and greenlet are imported; without them there is no such greenlet.
"""

from __future__ import annotations

import _thread
import queue
import sys
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
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
"""A waiting call looks again once a second: Python handles a signal that came just before the wait only afterwards, and
work whose thread was hit by an exception may tell nobody."""


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
        self._works: deque[Work[Any]] = deque()
        self._calls: SimpleQueue[bool] = queue.SimpleQueue()  # looked up late, for a patch by gevent
        self._finalizer = weakref.finalize(self, self._calls.put, False)
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
        self._works.append(work)
        self._calls.put(True)
        living = len(self._threads) - sum(map(has_ended, self._threads))
        if living < THREADS and not self._calls.empty():
            living += start_thread(self._threads, run_all, self._threads, self._works, self._calls)
        work.is_queued = True
        if not living:
            work.run()
        if self.closed.ended:
            work.cancel(AllocatorClosed())  # the pool was closed just now, and its threads may all have ended

    def close(self, seconds: float) -> None:
        """Drop queued work, and wait at most `seconds` for running work."""
        self.closed.end()
        for work in self._works.copy():
            work.cancel(AllocatorClosed())
        self._calls.put(False)
        end = monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))

    def after_fork(self) -> None:
        """Start a new pool in a forked child, which has none of the parent's threads."""
        was_closed, self.closed = self.closed.ended, Work(int)
        if was_closed:
            self.closed.end()
        self._finalizer.detach()
        self._start()


def start_thread(threads: list[threading.Thread], target: Callable[..., None], *args: object) -> bool:
    """Start a thread, and do not wait for its first step; return whether one can start.

    `Thread.start` waits for that step, for ever if an exception that was sent to the thread comes before. So a thread
    of its own calls it.
    """
    thread = threading.Thread(target=target, args=args, name="allocator", daemon=True)
    threads.append(thread)
    try:
        _thread.start_new_thread(begin, (thread, threads))
    except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
        threads.remove(thread)
        return False
    return True


def begin(thread: threading.Thread, threads: list[threading.Thread]) -> None:
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # the thread limit is reached with this one
        thread.run()
        threads.remove(thread)


def has_ended(thread: threading.Thread) -> bool:
    return thread.ident is not None and not thread.is_alive()


def run_all(threads: list[threading.Thread], works: deque[Work[Any]], calls: SimpleQueue[bool]) -> None:
    """Run work at each call, until the call to stop, which is False."""
    is_open = True
    try:
        while is_open:
            with suppress(Exception, SystemExit, KeyboardInterrupt):  # sent to this thread
                while works:  # first of all: an exception may have come in place of a call
                    run_first(works)
                is_open = calls.get()
    finally:  # another exception ends it, as GreenletExit must
        calls.put(is_open)  # the call to stop, or one that this thread leaves to the others
        if is_open and works:
            start_thread(threads, run_all, threads, works, calls)


def run_first(works: deque[Work[Any]]) -> None:
    """Run the first work. It stays queued until it is taken: an exception that hits this thread loses none."""
    work = works[0]
    with suppress(BaseException):  # the work holds the error, even CancelledError of a driver's hook, for its waiter
        work.run()
        works.remove(work)  # ValueError: another thread saw that it was taken


def takes_signals() -> bool:
    """Whether signal handlers run on this thread."""
    return threading.current_thread() is threading.main_thread()


def beside(call: Callable[[], T]) -> T:
    """Run `call` on a thread of its own, where nothing interrupts it, and wait for it; here if no thread can start."""
    if sys.is_finalizing():  # a thread would never say that it has begun
        return call()
    work, threads, calls = Work(call), list[threading.Thread](), SimpleQueue[bool]()
    calls.put(False)
    if not start_thread(threads, run_all, threads, deque([work]), calls):
        work.run()
    while not work.ended:
        block(work, WAIT_SLICE)  # first: a thread that just starts looks as if it had ended
        if all(map(has_ended, threads)):  # by an exception that was sent to it before it took the work, or after
            work.run()
            work.end(error=DatabaseUnavailable("somebody sent an exception to the thread of this call; retry"))
    return work.result()


# ---- waiting

Waits = Generator[tuple[Work[Any], float], None, T]
"""A call that waits: it yields what to wait for, and for how many seconds at most, and returns its result."""


def result_of(
    start: Callable[[], Work[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> Waits[T]:
    """Wait for the work that `start` begins. A result that comes after `seconds`, or for a cancelled call, is burnt.

    Work that must pause for long ends with an error that says for how long. The caller waits here, and begins the work
    again: no thread of the pool is kept that long, since the work of others needs it.
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
