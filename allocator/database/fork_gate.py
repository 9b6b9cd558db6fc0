"""Keep forks out of SQLite's statements.

SQLite keeps the locks of a process in its memory. A child that is forked while another thread runs a statement inherits
that memory without the thread: for the child the file stays locked, on every connection. So a fork takes the lock that
each statement holds, as Python's `logging` does with its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from allocator.runtime.forks import in_child, is_held_here

PATIENCE = 10.0
"""The longest that a fork waits, in seconds: a statement may hang for good, as on a network file system. A disk that is
busy answers within it; the child of a fork that went on earlier would find the file locked for ever."""

lock = threading.RLock()
"""Held by each statement, of whichever file. Re-entrant, since a statement may fork."""

# Functions in C: before the first step of one in Python a signal handler may raise, and the lock would stay taken.
close = partial(lock.acquire, timeout=PATIENCE)
leave = lock.release
"""Raises a `RuntimeError`, which Python prints and ignores, where the lock was not taken in time."""


@contextmanager
def closed() -> Iterator[None]:
    """Keep forks out of a block. If a statement hangs, run it after `PATIENCE` all the same, as a fork does."""
    try:
        close()
        yield
    finally:
        with suppress(RuntimeError):  # it was not taken in time
            leave()


def after_fork() -> None:
    """In a forked child, which has none of the parent's threads."""
    if is_held_here(lock):
        lock.release()  # what `close` took; a statement that forks keeps its own
    else:
        lock._at_fork_reinit()  # type: ignore[attr-defined]


in_child(after_fork)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=close, after_in_parent=leave)
