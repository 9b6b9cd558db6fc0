"""The thread pool of an allocator: every claim runs on one of its threads.

The work waits in a deque, and a `SimpleQueue` calls a thread for each: their `append` and `put` are safe in signal
handlers and destructors. If an exception that was sent to a thread, or a MemoryError, hits it as it waits, the call is
lost, and not the work, which leaves the deque only once a thread has taken it. The threads are daemons, so that a
hanging claim does not delay the exit of the interpreter; the range it may still get is burnt.

Waiting for the work of a thread never blocks an event loop. Blocking code can run inside an event loop: SQLAlchemy's
`AsyncSession` calls column defaults and hooks in a greenlet that awaits on their behalf. Waiting code awaits there too.
`sys.modules` tells whether SQLAlchemy and greenlet are imported; without them there is no such greenlet.
"""

from __future__ import annotations

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
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from allocator.errors import AllocatorClosed, AllocatorError, DatabaseUnavailable, InvalidSetting, ReentrantCall
from allocator.runtime.forks import catch_up

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""A thread waits for one answer at a time. More than a database has connections, since a fleet has several."""

WAIT_SLICE = 1.0
"""A waiting call wakes up once a second: Python handles a signal that came just before the wait only afterwards."""


class Outcome(Generic[T]):
    """What something ends with: a result or an error, of which the first counts.

    Without a lock, which an interrupt could leave taken for ever: threads and signal handlers append to lists.
    """

    __slots__ = ("_outcomes", "_waiting")

    def __init__(self) -> None:
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        self._waiting: list[Callable[[], object]] = []

    def done(self) -> bool:
        return bool(self._outcomes)

    def end(self, result: T | None = None, error: BaseException | None = None) -> None:
        self._outcomes.append((result, error))
        self._call_waiting()

    def when_done(self, call: Callable[[], object]) -> None:
        """Call `call` once it is done, on the thread that ends it; at once if it is done already."""
        self._waiting.append(call)
        if self._outcomes:
            self._call_waiting()

    def forget(self, call: Callable[[], object]) -> None:
        with suppress(ValueError):
            self._waiting.remove(call)

    def _call_waiting(self) -> None:
        while self._waiting:
            with suppress(IndexError):  # another thread took the last one
                self._waiting.pop()()

    def error(self) -> BaseException | None:
        return self._outcomes[0][1]

    def result(self, seconds: float = 0.0) -> T:
        """The result of what is done within `seconds`. Raises its error, or `TimeoutError`."""
        end = monotonic() + seconds
        while not self._outcomes and (left := end - monotonic()) > 0:
            block(self, left)
        if not self._outcomes:
            raise TimeoutError
        result, error = self._outcomes[0]
        if error is not None:
            raise error
        return cast("T", result)


Waits = Generator[tuple[Outcome[Any], float], None, T]
"""A call that waits: it yields what to wait for, and for how many seconds at most, and returns its result."""


class Work(Outcome[T]):
    """A call that runs at most once."""

    __slots__ = ("_calls",)

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._calls = [call]

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
            self.end(error=error)
            if not isinstance(error, Exception):
                raise

    def cancel(self) -> None:
        """Do not begin it: nobody waits for it. If it has begun, it runs on."""
        self._calls.clear()

    def drop(self, error: BaseException) -> None:
        if self.take():
            self.end(error=error)


class Turns:
    """Work of which one runs at a time."""

    def __init__(self) -> None:
        self.works: deque[Work[Any]] = deque()
        self.lock = threading.Lock()


class Background:
    """A pool of up to `THREADS` threads, started on demand."""

    def __init__(self) -> None:
        self.closed: Outcome[None] = Outcome()
        self._start()

    def _start(self) -> None:
        self.idle: Outcome[Any] = Outcome()
        """Done, and shared by all supplies without a request under way."""
        self.idle.end()
        self._works: deque[Work[Any]] = deque()
        self._calls: SimpleQueue[bool] = queue.SimpleQueue()  # looked up late, for a patch by gevent
        self._finalizer = weakref.finalize(self, self._calls.put, False)
        self._finalizer.atexit = False
        self._threads: list[threading.Thread] = []
        self._turns: WeakValueDictionary[str, Turns] = WeakValueDictionary()

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Work[T]:
        """Queue `call` for a thread; run it here if no thread can start, as at interpreter shutdown.

        It runs with the context variables of the caller, for log filters and tracing.
        """
        if self.closed.done():
            raise AllocatorClosed
        check_not_ending()
        work = Work(partial(copy_context().run, call, *args, **kwargs))
        self._works.append(work)
        self._calls.put(True)
        if self._living() < THREADS and not self._calls.empty():
            start_thread(self._threads, self._works, self._calls)
        if not self._living():
            work.run()
        if self.closed.done():
            work.drop(AllocatorClosed())  # the pool was closed just now, and its threads may all have ended
        return work

    def submit_in_turn(self, key: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Work[T]:
        """As `submit`, for work of which one of each `key` runs at a time: a locked row holds one thread, not all."""
        turns = self._turns.setdefault(key, Turns())
        work = Work(partial(copy_context().run, call, *args, **kwargs))
        turns.works.append(work)
        self._call_next(turns)
        return work

    def _call_next(self, turns: Turns) -> None:
        def drop_all() -> None:
            if error := turn.error():
                drop(turns.works, error)

        turn = self.submit(self._run_next, turns)
        turn.when_done(drop_all)

    def _run_next(self, turns: Turns) -> None:
        if turns.works and turns.lock.acquire(blocking=False):
            try:
                run_first(turns.works)
            finally:
                turns.lock.release()
            if turns.works:  # not in a loop: the work of others comes first
                self._call_next(turns)

    def _living(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)

    def close(self, seconds: float) -> None:
        """Drop queued work, and wait at most `seconds` for running work."""
        self.closed.end()
        drop(self._works, AllocatorClosed())
        self._calls.put(False)
        end = monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))

    def renew(self) -> None:
        """Start a new pool in a forked child, which has none of the parent's threads."""
        was_closed = self.closed.done()
        self.closed = Outcome()
        if was_closed:
            self.closed.end()
        self._finalizer.detach()
        self._start()


def start_thread(threads: list[threading.Thread], works: deque[Work[Any]], calls: SimpleQueue[bool]) -> None:
    thread = threading.Thread(target=run_all, args=(threads, works, calls), name="allocator", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
        return
    threads.append(thread)


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
            start_thread(threads, works, calls)


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


def bridge() -> Callable[[Awaitable[Any]], Any] | None:
    """SQLAlchemy's function that awaits for blocking code, inside its greenlet; None elsewhere."""
    concurrency = sys.modules.get("sqlalchemy.util.concurrency")
    if concurrency is None or "greenlet" not in sys.modules or not concurrency.in_greenlet():
        return None
    await_only: Callable[[Awaitable[Any]], Any] = concurrency.await_only
    return await_only


def block(what: Outcome[Any], seconds: float) -> tuple[()]:
    """Block until it is done, with or without an error; may return before `seconds`."""
    if await_only := bridge():
        await_only(wait_async(what, seconds))
        return ()
    ended: SimpleQueue[None] = queue.SimpleQueue()
    wake = partial(ended.put, None)
    what.when_done(wake)
    with suppress(Empty):
        ended.get(timeout=min(seconds, WAIT_SLICE))
    what.forget(wake)
    return ()


async def wait_async(what: Outcome[Any], seconds: float) -> None:
    """As `block`, but in the loop. Cancelling the waiter does not stop the work."""
    import asyncio

    loop, ended = running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    what.when_done(wake)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(seconds, WAIT_SLICE))
    finally:
        what.forget(wake)


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


async def result_async(work: Outcome[T]) -> T:
    """The result, however long it takes."""
    while not work.done():
        await wait_async(work, WAIT_SLICE)
    return work.result()


def wait_for(waits: Waits[T]) -> T:
    """Run `waits` to its result, and block this thread at each wait; inside SQLAlchemy's greenlet, await."""
    try:
        next(drive(waits, block))
    except StopIteration as end:
        result: T = end.value
    return result


async def wait_for_async(waits: Waits[T]) -> T:
    """Run `waits` to its result without blocking the loop."""
    return await drive_async(waits, wait_async)


def drive(waits: Waits[T], pause: Callable[[Outcome[Any], float], Any]) -> Generator[Any, Any, T]:
    """Run `waits` to its result. Yields what the loop waits for, or nothing where `pause` blocks.

    Not `async def`: Python warns of a coroutine that Ctrl-C drops before its first step.
    """
    try:
        while True:
            yield from pause(*next(waits))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        waits.close()


drive_async = coroutine(drive)


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
    work = Work(partial(copy_context().run, call))
    try:
        threading.Thread(target=run_first, args=(deque([work]),), name="allocator", daemon=True).start()
    except RuntimeError:
        work.run()
    while not work.done():
        block(work, WAIT_SLICE)
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
