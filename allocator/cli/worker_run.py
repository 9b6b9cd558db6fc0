"""`allocator worker run`: a command under a number that nobody else has.

Three processes: the wrapper, which leases the number and renews it; the command, its child; and a guard that kills the
command in time where the wrapper cannot.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from allocator.cli.worker_run_guard import Guard, read_times
from allocator.errors import InvalidSetting
from allocator.rules.command_deadline import Step, exit_code, next_step, until_killed, until_next_look
from allocator.runtime.linux import die_with_parent

if TYPE_CHECKING:
    from allocator.generators.worker_numbers import HeldNumber

FAULTS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
"""Faults of this process itself: the kernel ends it, whether they are blocked or not."""
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""An ignored signal stays ignored after exec, so the child sets these back to their defaults."""
BLOCKED = signal.valid_signals() - FAULTS - IGNORED_BY_PYTHON
"""The wrapper blocks these and reads them one by one."""
OURS = {signal.SIGCHLD, signal.SIGALRM}
"""Meant for the wrapper, not for the command: a child has ended, or its own timer has."""
WATCHED = BLOCKED - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU}
"""Nobody can wait for the first two. The others stay blocked: else `pass_terminal` would stop this process."""
SIGNALS = {one.name.removeprefix("SIG"): one for one in sorted(WATCHED - OURS) if isinstance(one, signal.Signals)}
ROUNDS, ROUND = 100, 0.05
"""Look 100 times, 0.05 s apart, for killed processes to end; then give up: one may be stuck in the kernel."""


class Wrapper:
    """Runs one command under one number. Made before any thread starts, since it forks twice.

    seconds: the length of the lease. variable, path: where the command finds its number.
    stop: the signal that the command gets when its number ends soon.
    """

    def __init__(self, command: tuple[str, ...], seconds: float, variable: str, path: Path | None, stop: int) -> None:
        self._seconds, self._variable, self._path, self._stop = seconds, variable, path, stop
        # Before the forks: a signal that comes during one waits until it can be passed on.
        signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
        self._guard = Guard()
        self._child = Child(command)
        logging.getLogger("allocator").addHandler(Said(logging.WARNING))
        self._signalled = False
        self._code: int | None = None

    def run(self, lease: Callable[[Callable[[], None]], AbstractContextManager[HeldNumber]]) -> int:
        """Lease a number, run the command to its end, and give the number back. Returns the exit code."""
        try:
            self._remove_file()  # a wrapper that was killed has left it
            with lease(wake) as held:
                try:
                    self._supervise(held)
                finally:
                    code = self._finish()
        finally:
            self._finish()  # if no number was leased; after a run it does nothing
        return exit_code(code, stopped=self._signalled)

    def _supervise(self, held: HeldNumber) -> None:
        read = read_times()
        # Before the command starts: it never runs without a deadline.
        self._guard.tell(self._child.process, read, until_killed(held.left(), self._seconds))
        if self._path:
            write(self._path, held.number)
        self._child.start({self._variable: str(held.number)})
        while not self._has_ended():
            read = read_times()  # before `left()`: if this process is stopped in between, the deadline is too early
            left, lost = held.left(), held.lost
            guarded = self._guard.process is not None
            step = next_step(left, self._seconds, lost=lost, guarded=guarded, signalled=self._signalled)
            if step is not Step.RUN:
                self._stop_child(step, held.number)
            self._guard.tell(self._child.process, read, 0.0 if lost else until_killed(left, self._seconds))
            self._wait(until_next_look(left, self._seconds, signalled=self._signalled))
        if not until_killed(held.left(), self._seconds) and not self._signalled:
            say(f"error: number {held.number} ended while this process was stopped, and so did the command")

    def _has_ended(self) -> bool:
        """Whether the command has ended; it is not reaped yet."""
        if self._guard.process and os.waitpid(self._guard.process, os.WNOHANG)[0]:
            self._guard.process = None
        return os.waitid(os.P_PID, self._child.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _stop_child(self, step: Step, number: int) -> None:
        if not self._signalled:
            why = "could not be renewed" if self._guard.process else "is not guarded any more: the guard process ended"
            say(f"error: number {number} {why}; stopping the command")
        self._signalled = True
        self._remove_file()
        if step is Step.KILL:
            self._child.kill()
        else:
            self._child.send(self._stop)

    def _wait(self, seconds: float) -> None:
        """Wait for the next look or a signal, and pass that on."""
        # Not sigtimedwait: in Python 3.11 it returns a signal that nobody sent if SIGSTOP outlasts its timeout.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        got = signal.sigwait(WATCHED)
        if got not in OURS:
            self._child.send(got)

    def _finish(self) -> int:
        """Kill what is left of the command's group, which could use the number. Returns the command's exit code."""
        if self._code is None:
            self._child.kill()  # before `reap`: afterwards another group may get this number, and be killed
            self._guard.dismiss()
            self._code = self._child.reap()
            for _ in range(ROUNDS):
                if not self._child.has_group():
                    break
                time.sleep(ROUND)
            pass_terminal(self._child.process, os.getpgrp())
            self._remove_file()
        return self._code

    def _remove_file(self) -> None:
        if self._path:
            with refused(self._path):
                self._path.unlink(missing_ok=True)


def say(text: str) -> None:
    """Print on stderr, unless that is a full pipe or closed: nothing may hold up the end of the command."""
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            click.echo(text, err=True)


class Said(logging.Handler):
    """Prints warnings of the lease without waiting."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def wake() -> None:
    """Interrupt the wait for signals: the number was lost. Called on a thread of the lease."""
    os.kill(os.getpid(), signal.SIGCHLD)


def write(path: Path, number: int) -> None:
    """Whole or not at all: a reader never finds half a number."""
    draft = path.with_name(f"{path.name}.new")
    with refused(path):
        draft.unlink(missing_ok=True)  # a killed wrapper has left it
        with draft.open("x", encoding="utf-8") as file:  # never an existing file, nor one that a planted link names
            file.write(f"{number}\n")
        draft.replace(path)


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """An error of a file, in a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidSetting(f"cannot write {path}: {error.strerror}") from error


class CannotStart(InvalidSetting):
    """The command is not there, or cannot be executed."""

    exit_code = 126


class NotFound(CannotStart):
    exit_code = 127


class Child:
    """A command in a process group of its own.

    Made before any thread starts, since it forks; it waits for `start` before it becomes the command.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        reader, self._starter = os.pipe()
        self._failures, failures = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._starter)
            become(command, reader, failures)
        os.close(reader)
        os.close(failures)
        with suppress(PermissionError, ProcessLookupError):  # the child calls it too, and may be first
            os.setpgid(self.process, self.process)

    def start(self, variables: Mapping[str, str]) -> None:
        """Let the child become the command; raises `CannotStart` if it cannot."""
        with suppress(BrokenPipeError):  # killed by the guard, if this process was stopped until now
            os.write(self._starter, "\0".join(f"{name}={value}" for name, value in variables.items()).encode())
        if error := os.read(self._failures, 16):
            kind = NotFound if int(error) == errno.ENOENT else CannotStart
            raise kind(f"cannot start {self._command[0]}: {os.strerror(int(error))}")

    def send(self, number: int) -> None:
        os.kill(self.process, number)  # not reaped yet, so the kernel has not given its number to another process

    def kill(self) -> None:
        """End every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)

    def has_group(self) -> bool:
        """Whether a process of the group is left, once the command was reaped."""
        try:
            os.killpg(self.process, 0)
        except ProcessLookupError:
            return False
        return True

    def reap(self) -> int:
        """The exit code of the command, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def become(command: tuple[str, ...], reader: int, failures: int) -> NoReturn:
    try:
        before = os.getpgrp()
        os.setpgid(0, 0)
        die_with_parent()
        variables = os.read(reader, 65536).decode()
        if not variables:  # there is no number, or the wrapper is gone
            os._exit(0)
        for line in variables.split("\0"):
            name, _, value = line.partition("=")
            os.environ[name] = value
        pass_terminal(before, os.getpgrp())
        for number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
        os.execvp(command[0], command)  # noqa: S606  # the user's command, without a shell
    except OSError as error:
        os.write(failures, str(error.errno).encode())
    finally:
        os._exit(127)


def pass_terminal(before: int, group: int) -> None:
    """Let the terminal talk to another group, as a shell does: else the command could not read from it."""
    with suppress(OSError):  # stdin is no terminal
        if os.tcgetpgrp(0) == before:
            os.tcsetpgrp(0, group)
