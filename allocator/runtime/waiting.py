"""Wait for the work of a thread without blocking an event loop.

Blocking code can run inside an event loop: SQLAlchemy's `AsyncSession` calls column defaults and hooks in a greenlet
that awaits on their behalf. Waiting code awaits there too. `sys.modules` tells whether SQLAlchemy and greenlet are
imported; without them there is no such greenlet.
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
    """SQLAlchemy's function that awaits for blocking code, inside its greenlet; None elsewhere."""
    concurrency = sys.modules.get("sqlalchemy.util.concurrency")
    if concurrency is None or "greenlet" not in sys.modules or not concurrency.in_greenlet():
        return None
    await_only: Callable[[Awaitable[Any]], Any] = concurrency.await_only
    return await_only


def result_of(future: Future[T], seconds: float) -> T:
    """The result of a thread's work, or `TimeoutError`. Neither a timeout nor a cancellation stops the work."""
    if await_only := bridge():
        if not await_only(wait_done(future, seconds)):
            raise TimeoutError
        seconds = 0.0
    return future.result(seconds)


def wait_for(
    start: Callable[[], Future[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> T:
    """The result of the work that `start` begins. A result that comes after `seconds` is burnt."""
    catch_up()
    while True:
        process, future = background.closed, start()
        try:
            result = result_of(future, seconds)
        except TimeoutError:
            future.cancel()
            error = overdue()
            raise error from error.__cause__
        if process is background.closed:
            return result
        # A signal handler forked while this waited: the result belongs to the parent. Start again.


async def wait_for_async(
    start: Callable[[], Future[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> T:
    """As `wait_for`, without blocking the loop."""
    catch_up()
    while True:
        process, future = background.closed, start()
        try:
            if not await wait_done(future, seconds):
                raise overdue()
        finally:
            future.cancel()  # work that has begun runs on, and its result is burnt
        if process is background.closed:
            return future.result()


def pause(closed: threading.Event, seconds: float) -> None:
    """Sleep for `seconds`. Outside of a greenlet, end early when `closed` is set."""
    if await_only := bridge():
        await_only(sleep_async(seconds))
    else:
        closed.wait(seconds)


async def sleep_async(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


async def wait_done(future: Future[Any], seconds: float) -> bool:
    """Wait for the work of a thread; False on a timeout. Cancelling the waiter does not stop the work."""
    import asyncio

    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(retrieve_error)
    done, _ = await asyncio.wait([wrapped], timeout=seconds)
    return bool(done)


def retrieve_error(future: asyncio.Future[Any]) -> None:
    """Mark the error as retrieved: else asyncio logs the error of an abandoned call."""
    if not future.cancelled():
        future.exception()
