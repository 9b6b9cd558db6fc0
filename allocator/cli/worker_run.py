"""`allocator worker run`: a command under a number that nobody else has."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import click

from allocator.cli.child_guard import Guard, read_times
from allocator.cli.child_process import BLOCKED, OURS, WATCHED, Child, pass_terminal
from allocator.errors import InvalidSetting
from allocator.rules.child_ending import Step, exit_code, next_step, until_killed, until_next_look
from allocator.runtime.linux import adopt_orphans

SIGNALS = {one.name.removeprefix("SIG"): one for one in sorted(WATCHED - OURS) if isinstance(one, signal.Signals)}
ROUNDS, ROUND = 100, 0.05
"""How long to wait for killed processes of the group, in seconds and parts of it: one may be stuck in the kernel."""


class Held(Protocol):
    """What the wrapper needs of a leased number."""

    @property
    def number(self) -> int: ...
    @property
    def lost(self) -> bool: ...
    def left(self) -> float: ...


class Wrapper:
    """Runs one command under one number. Made before any thread starts, since it forks twice.

    seconds: the length of the lease. variable, path: where the command finds its number.
    stop: the signal that the command gets when its number ends soon.
    """

    def __init__(self, command: tuple[str, ...], seconds: float, variable: str, path: Path | None, stop: int) -> None:
        self._seconds, self._variable, self._path, self._stop = seconds, variable, path, stop
        signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
        adopt_orphans()
        self._guard = Guard()
        self._child = Child(command)
        self._signalled = False
        self._code: int | None = None

    def run(self, lease: Callable[[Callable[[], None]], AbstractContextManager[Held]]) -> int:
        """Lease a number, run the command to its end, and give the number back. Returns the exit code."""
        try:
            self._remove_file()  # of a wrapper that was killed
            with lease(wake) as held:
                try:
                    self._supervise(held)
                finally:
                    code = self._finish()
        finally:
            self._finish()  # where there was no number
        return exit_code(code, stopped=self._signalled)

    def _supervise(self, held: Held) -> None:
        read = read_times()
        self._guard.tell(self._child.process, read, until_killed(held.left(), self._seconds))
        if self._path:
            write(self._path, held.number)
        self._child.start({self._variable: str(held.number)})
        while not self._has_ended():
            read = read_times()  # first: this process may be stopped before the guard hears of it
            left, lost = held.left(), held.lost
            guarded = self._guard.process is not None
            step = next_step(left, self._seconds, lost=lost, guarded=guarded, signalled=self._signalled)
            if step is not Step.RUN:
                self._stop_child(step, held.number)
            self._guard.tell(self._child.process, read, 0.0 if lost else until_killed(left, self._seconds))
            self._wait(until_next_look(left, self._seconds, signalled=self._signalled))
        if not until_killed(held.left(), self._seconds) and not self._signalled:
            click.echo(
                f"error: number {held.number} ended while this process was stopped, and so did the command", err=True
            )

    def _has_ended(self) -> bool:
        """Whether the command has ended; orphans that have ended are reaped, the command is not yet."""
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == self._child.process:
                return True
            os.waitpid(found.si_pid, 0)
            if found.si_pid == self._guard.process:
                self._guard.process = None
        return False

    def _stop_child(self, step: Step, number: int) -> None:
        if not self._signalled:
            why = "could not be renewed" if self._guard.process else "is not guarded any more: the guard process ended"
            click.echo(f"error: number {number} {why}; stopping the command", err=True)
        self._signalled = True
        self._remove_file()
        if step is Step.KILL:
            self._child.kill()
        else:
            self._child.send(self._stop)

    def _wait(self, seconds: float) -> None:
        """Wait for the next look or a signal, and pass that on."""
        # Not sigtimedwait: stopped past its timeout, that of Python 3.11 returns a signal that nobody sent.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        got = signal.sigwait(WATCHED)
        if got not in OURS:
            self._child.send(got)

    def _finish(self) -> int:
        """End what is left of the command's group, so that nobody uses the number any more; the command's own code."""
        if self._code is None:
            self._child.kill()  # before it is reaped: until then its number is its group's, and nobody else's
            self._guard.dismiss()
            self._code = self._child.reap()
            for _ in range(ROUNDS):
                if not self._child.has_group():
                    break
                reap_orphans()
                time.sleep(ROUND)
            pass_terminal(self._child.process, os.getpgrp())
            self._remove_file()
        return self._code

    def _remove_file(self) -> None:
        if self._path:
            with refused(self._path):
                self._path.unlink(missing_ok=True)


def wake() -> None:
    """Interrupt the wait for signals: the number was lost. Called by the thread that renews."""
    os.kill(os.getpid(), signal.SIGCHLD)


def write(path: Path, number: int) -> None:
    """Whole or not at all: a reader never finds half a number."""
    draft = path.with_name(f"{path.name}.new")
    with refused(path):
        draft.write_text(f"{number}\n", encoding="utf-8")
        draft.replace(path)


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """An error of a file, in a sentence."""
    try:
        yield
    except OSError as error:
        raise InvalidSetting(f"cannot write {path}: {error.strerror}") from error


def reap_orphans() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
