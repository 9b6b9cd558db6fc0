"""What work ends with, and how a caller waits for that: blocking, or awaiting.

Waiting for the work of a thread never blocks an event loop. Blocking code can run inside an event loop: SQLAlchemy's
`AsyncSession` calls column defaults and hooks in a greenlet that awaits on their behalf. Waiting code awaits there too.
`sys.modules` tells whether SQLAlchemy and greenlet are imported; without them there is no such greenlet.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from allocator.errors import InvalidSetting

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

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
            try:
                call = self._waiting.pop()
            except IndexError:  # another thread took the last one
                return
            call()

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


def bridge() -> Callable[[Awaitable[Any]], Any] | None:
    """SQLAlchemy's function that awaits for blocking code, inside its greenlet; None elsewhere."""
    concurrency, greenlet = sys.modules.get("sqlalchemy.util.concurrency"), sys.modules.get("greenlet")
    # The main greenlet of a thread has no parent. SQLAlchemy recurses without end where two threads ask it first.
    if concurrency is None or greenlet is None or greenlet.getcurrent().parent is None or not concurrency.in_greenlet():
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
