"""Work on a few threads of our own: for asyncio, and for whatever nobody waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from allocator.errors import AllocatorClosed

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
log = logging.getLogger("allocator")


class Background:
    """A pool of threads that starts with the first work and can be renewed after a fork."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._pool = new_pool()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `work` soon; at once and here where no thread can be had, as when the interpreter ends."""
        try:
            return self._pool.submit(work, *args, **kwargs)
        except RuntimeError:
            if self.closed.is_set():
                raise AllocatorClosed from None
            return run_here(work, *args, **kwargs)

    def close(self) -> None:
        """Waits for work under way, whose every wait has an end, and drops the rest."""
        self.closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def renew(self) -> None:
        """In a forked child: the threads stayed with the parent."""
        was_closed = self.closed.is_set()
        self.closed = threading.Event()
        if was_closed:
            self.closed.set()
        self._pool = new_pool()


def new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="allocator")


def run_here(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future
