"""The faces of `threading`, `queue` and `concurrent.futures`: the same words, on tasks of the scheduler."""

from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any

from simulation.scheduler import TIMED_OUT, Killed, Task, current, preempt, running


class Waiting:
    """Those who wait for one thing."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: deque[tuple[Task, int]] = deque()

    def wait(self, seconds: float | None = None) -> bool:
        """False when the time is over."""
        task = running()
        self.tasks.append((task, task.number + 1))
        return task.park(seconds) is not TIMED_OUT

    def wake_one(self) -> None:
        while self.tasks:
            task, number = self.tasks.popleft()
            if task.number == number and not task.dead and not task.process.is_dead:
                task.soon(number)
                return

    def wake_all(self) -> None:
        while self.tasks:
            task, number = self.tasks.popleft()
            task.soon(number)


class Lock:
    """Whoever holds it may be put off by the scheduler, so that others meet it locked; a fork copies it as it is."""

    __slots__ = ("_holder", "_waiting")

    def __init__(self) -> None:
        self._holder: object = None
        self._waiting = Waiting()

    def __enter__(self) -> bool:
        preempt()
        task = current()
        while self._holder is not None:
            self._wait()
        self._holder = task or self
        self._keep(task)
        return True

    def _wait(self) -> None:
        try:
            self._waiting.wait()
        except BaseException:  # a signal; it may have been our turn
            self._waiting.wake_one()
            raise

    def _keep(self, task: Task | None) -> None:
        """No signal is looked at between taking a lock and what it guards."""
        if task is not None:
            was, task.interruptible = task.interruptible, False
            preempt()
            task.interruptible = was

    def __exit__(self, *error: object) -> None:
        self._holder = None
        self._waiting.wake_one()
        if not isinstance(error[1], Killed):
            preempt()


class RLock(Lock):
    """Whoever holds it may take it again."""

    __slots__ = ("_depth",)

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def _is_owned(self) -> bool:
        return self._holder is not None and self._holder is current()

    def __enter__(self) -> bool:
        if not self._is_owned():
            super().__enter__()
        self._depth += 1
        return True

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            super().__exit__(*error)


class Event:
    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting = Waiting()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiting.wake_all()

    def wait(self, seconds: float | None = None) -> bool:
        if not self._set:
            self._waiting.wait(None if seconds is None else max(0.0, seconds))
        return self._set


class SimpleQueue:
    __slots__ = ("_items", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting = Waiting()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiting.wake_one()

    def get(self, timeout: float | None = None) -> Any:
        while not self._items:
            if not self._waiting.wait(timeout):
                raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class Thread:
    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str, daemon: bool) -> None:
        self._call = lambda: target(*args)
        self._ended = Event()
        self.task: Task | None = None
        self.ident: int | None = None

    def start(self) -> None:
        task = running()
        if not task.process.may_start_threads:
            raise RuntimeError("can't start new thread")
        self.task = task.scheduler.start(task.process, self._run)

    def _run(self) -> None:
        self.ident = id(self)
        try:
            self._call()
        except Killed:
            return
        self._ended.set()

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def join(self, seconds: float | None = None) -> None:
        self._ended.wait(seconds)


def start_new_thread(call: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Of `_thread`: what it calls starts a thread, and waits for nothing."""
    if not running().process.may_start_threads:
        raise RuntimeError("can't start new thread")
    call(*args)


class Threading:
    """Stands for the module `threading`."""

    Lock, RLock, Event, Thread = Lock, RLock, Event, Thread

    @staticmethod
    def current_thread() -> object:
        return current()
