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

from allocator.runtime.forks import in_child

PATIENCE = 2.0
"""The longest that a fork or a statement waits, in seconds: a statement may hang, as on a network file system."""


class Gate:
    """A lock that statements and forks of one process share."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a forked child, which has none of the parent's threads."""
        self._lock = threading.RLock()  # re-entrant: statements are nested, and a signal handler may fork

    def enter(self) -> None:
        self._lock.acquire(timeout=PATIENCE)

    def leave(self) -> None:
        with suppress(RuntimeError):  # it was not entered in time, or a signal handler raised before
            self._lock.release()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Block forks, and statements of other threads."""
        try:
            self.enter()
            yield
        finally:
            self.leave()


GATE = Gate()
in_child(GATE.renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.enter, after_in_parent=GATE.leave)
