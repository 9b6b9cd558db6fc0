"""Work on a few threads of the allocator: every claim runs here, for both faces.

The queue is a `SimpleQueue`, whose `put` may be called from a signal handler or a destructor at any moment. The threads
are daemons: a claim that hangs does not keep the interpreter from ending, and the range it may still get is burnt.
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
    """A call to be made once, and the future of its result."""

    __slots__ = ("_call", "_left", "future")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._call = call
        self._left = [True]

    def take(self) -> bool:
        """True for the first who asks: where no thread could be started, two may hold the same work."""
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
    """Threads that start with the work, up to `THREADS`, and end with this; they can be renewed after a fork."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._start()

    def _start(self) -> None:
        self.nothing: Future[Any] = Future()
        """Of those who have no work under way."""
        self.nothing.set_result(None)
        self._queue: SimpleQueue[Work | None] = queue.SimpleQueue()  # that of gevent, if it has patched it by now
        self._forgotten = weakref.finalize(self, self._queue.put, None)
        self._forgotten.atexit = False
        self._threads: list[threading.Thread] = []

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `call` soon; at once and here where no thread can be had, as when the interpreter ends."""
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
            work.drop()  # closed meanwhile, and nobody may come for it
        return work.future

    def _start_thread(self) -> None:
        thread = threading.Thread(target=run_all, args=(self._queue,), name="allocator", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads on this system, or the interpreter ends
            return
        self._threads.append(thread)

    def close(self, seconds: float) -> None:
        """Drop what has not begun, and wait so long at most for what has."""
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
        """In a forked child: the threads stayed with the parent."""
        was_closed = self.closed.is_set()
        self.closed = threading.Event()
        if was_closed:
            self.closed.set()
        self._forgotten.detach()
        self._start()


def run_all(waiting: SimpleQueue[Work | None]) -> None:
    while work := waiting.get():
        with suppress(BaseException):  # as SystemExit out of a driver's hook; whoever waits for the work has it
            work.run()
        del work  # an idle thread keeps nothing alive
    waiting.put(None)  # for the next thread, of which one may have started since
