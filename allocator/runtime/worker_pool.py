"""The worker pool of an allocator: every claim runs on one of its threads.

The queue is a `SimpleQueue`, because its `put` is safe in signal handlers and destructors. The threads are daemons, so
that a hanging claim does not delay the exit of the interpreter; the range it may still get is burnt.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from allocator.errors import AllocatorClosed
from allocator.runtime.reentrancy import check_not_ending

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8


class Work:
    """A call that runs at most once, and the future of its result."""

    __slots__ = ("_call", "_left", "future")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._call = call
        self._left = [True]

    def take(self) -> bool:
        """True for the first caller only: without a worker thread, the submitter runs the work, which stays queued."""
        try:
            return self._left.pop()
        except IndexError:
            return False

    def run(self) -> None:
        if not self.take() or not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:
            self.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.future.set_result(result)

    def drop(self) -> None:
        if self.take() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(AllocatorClosed())


class Background:
    """A pool of up to `THREADS` threads, started on demand."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._start()

    def _start(self) -> None:
        self.idle: Future[Any] = Future()
        """A finished future, shared by all supplies without a request under way."""
        self.idle.set_result(None)
        self._queue: SimpleQueue[Work | None] = queue.SimpleQueue()  # looked up late, for a patch by gevent
        self._finalizer = weakref.finalize(self, self._queue.put, None)
        self._finalizer.atexit = False
        self._threads: list[threading.Thread] = []

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue `call` for a thread; run it here if no thread can start, as at interpreter shutdown."""
        if self.closed.is_set():
            raise AllocatorClosed
        check_not_ending()
        work = Work(lambda: call(*args, **kwargs))
        self._queue.put(work)
        if len(self._threads) < THREADS and not self._queue.empty():
            self._start_thread()
        if not self._threads:
            work.run()
        if self.closed.is_set():
            work.drop()  # closed meanwhile: perhaps no thread is left to take it
        return work.future

    def _start_thread(self) -> None:
        thread = threading.Thread(target=run_all, args=(self._queue,), name="allocator", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
            return
        self._threads.append(thread)

    def close(self, seconds: float) -> None:
        """Drop queued work, and wait at most `seconds` for running work."""
        self.closed.set()
        self._drop_all()
        self._queue.put(None)
        end = monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))

    def _drop_all(self) -> None:
        try:
            while True:
                if work := self._queue.get_nowait():
                    work.drop()
        except Empty:
            pass

    def renew(self) -> None:
        """Start a new pool in a forked child, which has none of the parent's threads."""
        was_closed = self.closed.is_set()
        self.closed = threading.Event()
        if was_closed:
            self.closed.set()
        self._finalizer.detach()
        self._start()


def run_all(waiting: SimpleQueue[Work | None]) -> None:
    while work := waiting.get():
        with suppress(BaseException):  # even SystemExit from a driver's hook: the future holds it for the waiter
            work.run()
        del work  # an idle thread must not keep its result alive
    waiting.put(None)  # pass the stop signal on to the next thread
