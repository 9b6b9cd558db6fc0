"""Keep forks out of SQLite's statements.

SQLite keeps the locks of a process in its memory. A child that is forked while another thread runs a statement inherits
that memory without the thread: for the child the file stays locked, on every connection. So a fork takes the lock that
each statement holds, as Python's `logging` does with its own.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from allocator.runtime.forks import in_child

PATIENCE = 2.0
"""The longest that a fork waits, in seconds: a statement may hang, as on a network file system."""

lock = threading.RLock()
"""Held by each statement. Re-entrant, since a statement may fork."""


def close() -> None:
    lock.acquire(timeout=PATIENCE)


def leave() -> None:
    with suppress(RuntimeError):  # it was not taken in time
        lock.release()


def renew() -> None:
    """In a forked child, which has none of the parent's threads."""
    global lock
    lock = threading.RLock()


in_child(renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=close, after_in_parent=leave)
