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
"""The process group, and its deadline by two clocks. A pipe writes up to 512 bytes in one piece, and this is less."""


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
    - the deadline is reached by the clock that counts sleep, or by the wall clock: kill
    - the pipe is closed: the wrapper has ended, and its lease is not renewed. Kill

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
        if not os.read(ready, 1):  # wait for its setsid(): until then, Ctrl-Z in the terminal would stop it too
            raise InvalidSetting("the guard process cannot run here: the kernel gives it no timer")
        os.close(ready)
        os.set_blocking(self._writer, False)

    def tell(self, group: int, read: Times, seconds: float) -> None:
        """Set the deadline: the guard kills the group `seconds` after `read`. A later call replaces it."""
        order = ORDER.pack(group, read.boot + seconds, read.wall + seconds)
        # If the guard has ended, the wrapper gets SIGCHLD. If it is stopped, the deadlines in a full pipe have passed.
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
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # systemd signals all processes of a unit
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # a reader of the command's output would wait until the guard closes it too
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
        if reader in ready:  # before the alarms: one may have rung just before the renewal arrived
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
