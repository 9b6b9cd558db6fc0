"""`allocator worker run`: a command under a number that nobody else has.

The wrapper leases the number and renews it; the command is its child, and ends with it. A timer of the kernel ends the
wrapper where it cannot stop the command in time itself, even if it is stopped.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from allocator.cli import worker_child
from allocator.cli.output import OWN_FAILURE

if TYPE_CHECKING:
    from allocator.generators.worker_numbers import HeldNumber

PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
PASSED_ON |= {signal.SIGWINCH, signal.SIGTSTP}
WAITED_FOR = PASSED_ON | {signal.SIGCHLD}
"""Those that are passed on; the command has ended, or the number is lost."""
SIGNAL_LEFT = 0.3
"""The second renewal begins when a third of the lease is left, so one failed renewal does not stop the command."""
KILL_LEFT = 0.15
END_LEFT = 0.1
"""The share of the lease in which a busy machine must end the killed processes."""
LOOKS = 40
"""Looks in one lease: the command is stopped at most a fortieth of a lease late."""


def next_signal(left: float, lease: float, *, lost: bool, was_stopped: bool) -> int | None:
    """What the command gets now. If the number is lost, another process may have it already."""
    if lost or left <= lease * KILL_LEFT:
        return signal.SIGKILL
    return signal.SIGTERM if left <= lease * SIGNAL_LEFT and not was_stopped else None


def exit_code(code: int, *, was_stopped: bool) -> int:
    """The wrapper's exit code. `code` is that of the command, or minus the signal that ended it.

    A command that was stopped for its number has not succeeded, whatever it says: else nobody would start it again.
    """
    if code < 0:
        return 128 - code
    return OWN_FAILURE if was_stopped and code == 0 else code


class Wrapper:
    """Runs one command under one number.

    Make it before the number is leased. seconds: the length of the lease. variable: where the command finds its number.
    """

    def __init__(self, command: tuple[str, ...], seconds: float, variable: str) -> None:
        self._command, self._seconds, self._variable = command, seconds, variable
        self._timer = KillTimer()
        self._was_stopped = False
        # The threads of the lease inherit it: each signal waits for this thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)

    def run(self, held: HeldNumber) -> int:
        """Run the command to its end. Returns the exit code; no process of the command's group has the number then."""
        self._set_timer(clock(), held.left())  # the command never runs without a deadline
        child = start(self._command, {self._variable: str(held.number)})
        try:
            self._supervise(child, held)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet: no other group has this number
            code = child.wait()
            self._timer.set(None)
        return exit_code(code, was_stopped=self._was_stopped)

    def _supervise(self, child: subprocess.Popen[bytes], held: HeldNumber) -> None:
        """Watch the number and the command until one of them has ended."""
        while not has_ended(child):
            at = clock()  # before `left()`: if this process is stopped in between, the deadline is too early
            left, lost = held.left(), held.lost
            number = next_signal(left, self._seconds, lost=lost, was_stopped=self._was_stopped)
            if number is not None and not self._was_stopped:
                click.echo(f"error: number {held.number} could not be renewed; stopping the command", err=True)
                self._was_stopped = True
            if number == signal.SIGKILL:
                return
            if number is not None:
                os.kill(child.pid, number)  # not `send_signal`, which may reap it
            self._set_timer(at, left)
            got = signal.sigtimedwait(WAITED_FOR, self._seconds / LOOKS)
            if got is not None and got.si_signo in PASSED_ON:
                os.kill(child.pid, got.si_signo)

    def _set_timer(self, at: float, left: float) -> None:
        self._timer.set(at, left - self._seconds * END_LEFT)


def start(command: tuple[str, ...], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own. Call it on the main thread: the kernel ends it with its thread."""
    inherited, _ = os.pipe()  # this process keeps the other end open until it ends
    os.set_inheritable(inherited, True)
    environment = {**os.environ, **variables}
    words = [sys.executable, "-I", "-S", worker_child.__file__, str(os.getpid()), str(inherited), *command]
    try:
        return subprocess.Popen(words, env=environment, start_new_session=True, close_fds=False)  # noqa: S603  # the user's
    finally:
        os.close(inherited)


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the command has ended; it is not reaped yet."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wake() -> None:
    """Interrupt the wait for signals: the number was lost. Called on a thread of the lease."""
    os.kill(os.getpid(), signal.SIGCHLD)


def timer_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("librt.so.1", use_errno=True)  # apart from libc before glibc 2.34
    except OSError:
        return ctypes.CDLL(None, use_errno=True)  # musl


class KillTimer:
    """The kernel kills this process at a time, even while it is stopped."""

    SIGEV_SIGNAL, TIMER_ABSTIME = 0, 1

    def __init__(self) -> None:
        self._libc, self._timer = timer_library(), ctypes.c_void_p()
        event = struct.pack("Pii48x", 0, signal.SIGKILL, self.SIGEV_SIGNAL)  # `struct sigevent`
        self._check(self._libc.timer_create(time.CLOCK_BOOTTIME, event, ctypes.byref(self._timer)))

    def set(self, at: float | None, seconds: float = 0.0) -> None:
        """Kill this process `seconds` after `clock` said `at`, in place of an earlier call. None: never."""
        nanoseconds = 0 if at is None else max(1, int((at + seconds) * 1e9))  # a time of 0 turns a timer off
        times = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 10**9))  # `struct itimerspec`: no interval, the time
        self._check(self._libc.timer_settime(self._timer, self.TIMER_ABSTIME, times, None))

    def _check(self, result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def clock() -> float:
    """Seconds, by the clock that counts sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
