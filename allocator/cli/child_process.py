"""The command of `allocator worker run` as a child: its start, its signals and its end."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from allocator.errors import InvalidSetting
from allocator.runtime.linux import die_with_parent

FAULTS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGBUS, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
BLOCKED = signal.valid_signals() - FAULTS - IGNORED_BY_PYTHON
"""By the wrapper, which takes them one by one. Blocked, they reach process 1 too, which has no handlers by default."""
OURS = {signal.SIGCHLD, signal.SIGALRM}
"""A child has ended; it is time to look. Not passed on."""
WATCHED = BLOCKED - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU}


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
        with suppress(PermissionError, ProcessLookupError):  # the child does the same; either may be first
            os.setpgid(self.process, self.process)

    def start(self, variables: Mapping[str, str]) -> None:
        """Let the child become the command; raises `CannotStart` if it cannot."""
        with suppress(BrokenPipeError):  # killed by the guard, if this process was stopped until now
            os.write(self._starter, "\0".join(f"{name}={value}" for name, value in variables.items()).encode())
        if error := os.read(self._failures, 16):
            kind = NotFound if int(error) == errno.ENOENT else CannotStart
            raise kind(f"cannot start {self._command[0]}: {os.strerror(int(error))}")

    def send(self, number: int) -> None:
        os.kill(self.process, number)  # it is not reaped before the end, so this is never another process

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
