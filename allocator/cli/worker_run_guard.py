"""The guard of `allocator worker run`: kills the command at its deadline, whatever became of the wrapper."""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from contextlib import suppress
from typing import NamedTuple

from allocator.errors import InvalidSetting
from allocator.runtime.linux import CLOCK_BOOTTIME, CLOCK_REALTIME, Alarm

ORDER = struct.Struct("=qdd")
"""The process group, and its deadline by two clocks. Less than a pipe writes in one piece."""


class Times(NamedTuple):
    """The clock that counts sleep, and the wall clock, in seconds."""

    boot: float
    wall: float


def read_times() -> Times:
    return Times(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


class Guard:
    """The wrapper's end of the pipe to a process that kills the command at a deadline, whatever became of the wrapper.

    That process has a session of its own, so that whatever stops the wrapper does not stop it. It sleeps in the kernel
    until one of these:

    - a new deadline comes through the pipe: the number was renewed
    - the deadline is reached by the clock that counts sleep, or by the clock on the wall: kill
    - the end of the pipe: the wrapper is gone, and nobody renews. Kill

    Make it before any thread starts: it forks.

    process: its id, or None once it has ended and the wrapper has reaped it.
    """

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        ready, begun = os.pipe()
        self.process: int | None = os.fork()
        if self.process == 0:
            try:
                os.close(self._writer)
                watch(reader, begun)
            finally:
                os._exit(0)
        os.close(reader)
        os.close(begun)
        if not os.read(ready, 1):  # before it has its own session, whatever stops us would stop it
            raise InvalidSetting("the guard process cannot run here: the kernel gives it no timer")
        os.close(ready)
        os.set_blocking(self._writer, False)

    def tell(self, group: int, read: Times, seconds: float) -> None:
        """Kill this group so many seconds after the clocks were read, unless told otherwise before."""
        order = ORDER.pack(group, read.boot + seconds, read.wall + seconds)
        # Gone: the wrapper sees that as the end of a child. Stopped: the pipe is full, of deadlines that have passed.
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._writer, order)

    def dismiss(self) -> None:
        """End the guard; the group was killed."""
        if self.process is not None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self._writer)


def watch(reader: int, begun: int) -> None:
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # systemd signals every process of a unit
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # else whoever reads the command's output would wait for the guard
        os.dup2(nowhere, standard)
    os.chdir("/")
    boot, wall = Alarm(CLOCK_BOOTTIME), Alarm(CLOCK_REALTIME)
    poll = select.poll()
    for file in (reader, boot.fileno(), wall.fileno()):
        poll.register(file, select.POLLIN)
    os.write(begun, b".")
    os.close(begun)
    group = 0
    while True:
        ready = {file for file, _ in poll.poll()}
        if reader in ready:  # first: the alarm may have rung just before the renewal came
            order = os.read(reader, ORDER.size)
            if not order:
                kill_group(group)
                return
            group, boot_at, wall_at = ORDER.unpack(order)
            boot.set(boot_at)
            wall.set(wall_at)
            continue
        kill_group(group)
        for alarm in (boot, wall):
            if alarm.fileno() in ready:
                alarm.hush()


def kill_group(group: int) -> None:
    if group:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
