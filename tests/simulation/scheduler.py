"""Time is a number, and everything that happens is an event in a heap: one seed, one history.

The real code blocks, so each of its threads is a task: a greenlet that is parked until an event wakes it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from time import gmtime
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from simulation.seeds import Violation

if TYPE_CHECKING:
    from simulation.process import Process

BEGIN = 1_800_000_000.0
"""What the clocks on the wall show at the beginning of the world, in seconds since 1970."""
TIMED_OUT = object()
"""What a parked task is given when nothing else came in time."""


class Killed(BaseException):
    """Ends the greenlet of a thread whose process is no more; nothing that it does then has any effect."""


class Task(greenlet):
    """A thread of a simulated process. `interruptible`: it is the one that gets the signals."""

    def __init__(self, scheduler: Scheduler, process: Process, call: Callable[[], None]) -> None:
        super().__init__(lambda _: call(), scheduler.hub)
        self.scheduler = scheduler
        self.process = process
        self.interruptible = False
        self.number = 0
        """Of the present wait: a wake-up that was meant for one before does nothing."""

    def park(self, seconds: float | None = None) -> Any:
        """Wait for `wake`, so many seconds at most."""
        scheduler = self.scheduler
        if self.process.is_dead or scheduler.over:
            raise Killed
        self.number += 1
        if seconds is not None:
            scheduler.after(seconds, self.wake, self.number, TIMED_OUT)
        value = scheduler.hub.switch()
        if isinstance(value, BaseException):
            raise value
        return value

    def wake(self, number: int, value: Any = None) -> None:
        """An event: go on, if it still waits for this. While the process is paused, that is kept for later."""
        if number != self.number or self.dead or self.process.is_dead:
            return
        if self.process.is_paused:
            self.process.held.append((self.wake, (number, value)))
            return
        self.number += 1
        self.switch(value)

    def soon(self, number: int, value: Any = None) -> None:
        """Wake it by an event of its own."""
        self.scheduler.after(0.0, self.wake, number, value)

    def finish(self) -> None:
        """At the end of the world: unwind what never went on."""
        self.number += 1
        if self and not self.dead:
            self.throw(Killed)
        assert self.dead or not self, "a thread that waits where no face stands"


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        Violation.raised.clear()
        self.now = 0.0
        self.over = False
        self.events = 0
        self.hub = getcurrent()
        self.tasks: list[Task] = []
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._order), call, args))

    def start(self, process: Process, call: Callable[[], None]) -> Task:
        """A thread of the process, which begins with an event of its own."""
        task = Task(self, process, call)
        self.tasks.append(task)
        self.after(self.random.random() * 1e-4, task.wake, task.number)
        return task

    def run(self, until: float) -> None:
        heap, broken = self._heap, Violation.raised
        while heap and heap[0][0] <= until:
            self.now, _, call, args = heapq.heappop(heap)
            self.events += 1
            call(*args)
            if broken:
                raise broken[0]
        self.now = until

    def finish(self) -> None:
        self.over = True
        for task in self.tasks:
            task.finish()
        self.tasks.clear()
        self._heap.clear()


def current() -> Task | None:
    """The thread that runs now, None for the hub."""
    task = getcurrent()
    return task if isinstance(task, Task) else None


def running() -> Task:
    """The thread that runs now."""
    task = current()
    assert task is not None, "only threads of a process wait, read clocks and ask a database"
    return task


def pause(seconds: float) -> None:
    """Let the current thread sleep."""
    running().park(seconds)


def preempt() -> None:
    """A place where the system may let another thread run: now and then it does, for a moment or for long."""
    task = current()
    if task is None:
        return
    draw = task.scheduler.random.random()
    if draw < 0.1:
        task.park(draw * (1e-3 if draw > 0.01 else 1.0))
    elif task.process.is_dead or task.scheduler.over:
        raise Killed


class Clock:
    """Of one process: it runs on by the world's time, and jumps or stands still when it is told to."""

    def __init__(self, scheduler: Scheduler, since_boot: float) -> None:
        self._scheduler = scheduler
        self._since_boot = since_boot
        self._off = 0.0
        self.was_set_back = False

    def monotonic(self) -> float:
        """Never goes back. It stands still while a virtual machine does, and goes on while a process is stopped."""
        return self._scheduler.now + self._since_boot

    def wall(self) -> float:
        return BEGIN + self._scheduler.now + self._off

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock on the wall."""
        self._off += seconds
        self.was_set_back |= seconds < 0

    def mend(self) -> None:
        """It shows what the server's does."""
        self.jump(-self._off)

    def stand(self, seconds: float) -> None:
        """The machine was suspended for so long: neither clock has noticed yet."""
        self._since_boot -= seconds
        self._off -= seconds


def monotonic() -> float:
    return running().process.clock.monotonic()


class Time:
    """Stands for the module `time`."""

    gmtime = staticmethod(gmtime)

    @staticmethod
    def time() -> float:
        return running().process.clock.wall()
