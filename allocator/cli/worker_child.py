"""What a child of `allocator worker run` does before it becomes the command: it binds its life to its parent's.

Run as a script, without the packages of this Python: worker_child.py PARENT PIPE COMMAND…
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, pipe: int) -> None:
    """Let the kernel kill this process when its parent ends, and its group too while the pipe is open in one of it.

    The parent holds the other end of the pipe; the kernel signals the owner of a pipe when that end closes.
    """
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(errno.EINVAL, "the kernel does not end it with its parent")
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    if os.getppid() != parent:  # it ended before this was set
        os._exit(0)


def usual_signals() -> None:
    """Undo what this Python and the parent set: what is ignored or blocked stays so in the command."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(parent: str, pipe: str, *command: str) -> int:
    try:
        die_with_parent(int(parent), int(pipe))
        usual_signals()
        os.execvp(command[0], command)  # noqa: S606  # the user's command, without a shell
    except OSError as error:
        sys.stderr.write(f"error: cannot start {command[0]}: {error.strerror}\n")
        return 127 if error.errno == errno.ENOENT else 126


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
