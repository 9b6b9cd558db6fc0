"""The clocks of one process: they run on by the world's time, and jump or stand still when they are told to."""

from __future__ import annotations

from time import gmtime
from typing import TYPE_CHECKING

from simulation.scheduler import current

if TYPE_CHECKING:
    from simulation.scheduler import Scheduler

BEGIN = 1_800_000_000.0
"""What the clocks on the wall show at the beginning of the world, in seconds since 1970."""


class Clock:
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


def clock() -> Clock:
    """Of whoever runs now."""
    task = current()
    assert task is not None, "only threads of a process read clocks"
    return task.process.clock


def monotonic() -> float:
    return clock().monotonic()


class Time:
    """Stands for the module `time`."""

    gmtime = staticmethod(gmtime)

    @staticmethod
    def time() -> float:
        return clock().wall()


def sleep(seconds: float) -> None:
    task = current()
    assert task is not None
    task.park(seconds)
