"""Waiting for what a thread does, so that no event loop ever waits with it.

Blocking code runs inside an event loop too: SQLAlchemy's `AsyncSession` calls defaults and hooks in a greenlet, which
it leaves while an answer is awaited. What would block there is awaited in the same way. SQLAlchemy and greenlet are
looked up, never imported: where nobody has imported them, there is no such greenlet.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.errors import AllocatorError
from allocator.runtime.forks import catch_up
from allocator.runtime.worker_pool import Background

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def bridge() -> Callable[[Awaitable[Any]], Any] | None:
    """Awaits on behalf of blocking code, where that runs in a greenlet of SQLAlchemy's; None anywhere else."""
    concurrency = sys.modules.get("sqlalchemy.util.concurrency")
    if concurrency is None or "greenlet" not in sys.modules or not concurrency.in_greenlet():
        return None
    found: Callable[[Awaitable[Any]], Any] = concurrency.await_only
    return found


def result_of(future: Future[T], seconds: float) -> T:
    """What a thread brings; `TimeoutError` if that takes longer. Neither a time-out nor a cancellation reaches it."""
    if awaited := bridge():
        if not awaited(ended(future, seconds)):
            raise TimeoutError
        seconds = 0.0
    return future.result(seconds)


def wait_for(
    start: Callable[[], Future[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> T:
    """The result of the work that `start` begins. What comes later than `seconds` is burnt."""
    catch_up()
    while True:
        process, future = background.closed, start()
        try:
            found = result_of(future, seconds)
        except TimeoutError:
            future.cancel()
            error = overdue()
            raise error from error.__cause__
        if process is background.closed:
            return found
        # Forked while it waited, as in a signal handler: what came is the parent's.


async def wait_for_async(
    start: Callable[[], Future[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> T:
    """As `wait_for`, without blocking the loop."""
    catch_up()
    while True:
        process, future = background.closed, start()
        try:
            if not await ended(future, seconds):
                raise overdue()
        finally:
            future.cancel()  # what has begun is burnt
        if process is background.closed:
            return future.result()


def pause(closed: threading.Event, seconds: float) -> None:
    """So many seconds; less, where `closed` is set and nobody else's loop would wait for that."""
    if awaited := bridge():
        awaited(sleep_async(seconds))
    else:
        closed.wait(seconds)


async def sleep_async(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


async def ended(future: Future[Any], seconds: float) -> bool:
    """Wait for a thread's work; neither a time-out nor a cancellation of the waiter reaches the work."""
    import asyncio

    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(retrieve_error)
    done, _ = await asyncio.wait([wrapped], timeout=seconds)
    return bool(done)


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """asyncio logs an error that nobody looked at, as of a call that was given up."""
    if not future.cancelled():
        future.exception()
