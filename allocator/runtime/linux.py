"""What the Linux kernel does for a process that Python 3.11 has no call for: alarms by absolute clocks, and `prctl`."""

from __future__ import annotations

import ctypes
import os
import signal

CLOCK_REALTIME, CLOCK_BOOTTIME = 0, 7
PR_SET_PDEATHSIG = 1
TFD_TIMER_ABSTIME = 1
TFD_CLOEXEC = 0o2000000


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Itimerspec(ctypes.Structure):
    _fields_ = [("interval", Timespec), ("value", Timespec)]


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Alarm:
    """A file descriptor that becomes readable at a time of a clock, also where the machine slept until then."""

    def __init__(self, clock: int) -> None:
        self._libc = libc()
        self._file = checked(self._libc.timerfd_create(clock, TFD_CLOEXEC))

    def fileno(self) -> int:
        return self._file

    def set(self, at: float) -> None:
        """Ring at this many seconds of the clock; a time that has passed rings at once."""
        nanoseconds = max(1, int(at * 1e9))  # 0 turns an alarm off
        when = Itimerspec(Timespec(0, 0), Timespec(*divmod(nanoseconds, 10**9)))
        checked(self._libc.timerfd_settime(self._file, TFD_TIMER_ABSTIME, ctypes.byref(when), None))

    def hush(self) -> None:
        os.read(self._file, 8)


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that forked it ends."""
    checked(libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
