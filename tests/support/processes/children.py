"""Children of this process: forked by Python, which tells its at-fork hooks, and by C, which does not.

And what Linux tells of other processes.
"""

import ctypes
import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def fork_in_c() -> int:
    """As uWSGI forks, with the GIL held.

    A thread that is about to wait for the GIL may have the lock of it, which in the child nobody would give back. So
    those that have just answered may come to rest first.
    """
    time.sleep(0.02)
    return int(ctypes.PyDLL(None).fork())


PATIENCE = 60.0
"""Seconds that a child may take: after a fork in C, Python may wait for ever for a thread that it starts."""


def in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> str:
    """Run `work` in a forked child and return what it said, or the error that it ended with.

    A child that says nothing for too long is killed, and "" is returned.
    """
    reader, writer = os.pipe()
    if (child := fork()) == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    try:
        return said_by(reader, time.monotonic() + PATIENCE)
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        return ""
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def said_by(reader: int, end: float) -> str:
    parts = []
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        if not (part := os.read(reader, 65536)):
            return b"".join(parts).decode()
        parts.append(part)
    raise TimeoutError


def found_in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> Any:
    """What `work` returns in a forked child; an error there is one here."""
    said = in_child(lambda: json.dumps(work()), fork)
    try:
        return json.loads(said)
    except ValueError:
        raise AssertionError(said or f"the child said nothing within {PATIENCE:g} seconds") from None


def state(process: object) -> str:
    """As in /proc: R, S, T, Z …; empty where there is no such process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    return ""


def runs(process: int) -> bool:
    return state(process) not in ("", "Z", "X")


def stop(process: int) -> None:
    """Return when it is stopped, with all its threads."""
    os.kill(process, signal.SIGSTOP)
    while any(state(f"{process}/task/{task.name}") not in "TZX" for task in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.001)
