"""Keep forks out of SQLite's statements.

SQLite keeps the locks of a process in its memory. A child that is forked while another thread runs a statement inherits
that memory without the thread: for the child the file stays locked, on every connection. So a fork waits for the
statements under way, and new statements wait for the fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from allocator.runtime.forks import in_child

PATIENCE = 2.0
"""The longest that a fork waits, in seconds. A longer statement usually waits for another process and holds no lock."""


class Gate:
    """Separates the statements and the forks of one process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a forked child, which has none of the parent's threads."""
        self._lock = threading.RLock()  # re-entrant: a signal handler may fork
        self._changed = threading.Condition(self._lock)
        self._under_way: set[int] = set()
        self._forks = 0

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Block forks during a statement. Nested statements of one thread count once."""
        me = threading.get_ident()
        if me in self._under_way:
            yield
            return
        try:
            with self._lock:
                if self._forks:
                    self._changed.wait_for(lambda: not self._forks, PATIENCE)
                self._under_way.add(me)
            yield
        finally:
            with self._lock:
                self._under_way.discard(me)
                if self._forks:
                    self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait for the statements of other threads; the forking thread's own cannot end first."""
        with self._changed:
            # Before the wait, so that no new statement starts meanwhile.
            self._forks += 1
            self._changed.wait_for(lambda: self._under_way <= {threading.get_ident()}, PATIENCE)

    def after_fork(self) -> None:
        """In the parent, also after a failed fork or an interrupted `before_fork`."""
        with self._changed:
            self._forks = max(0, self._forks - 1)
            self._changed.notify_all()


GATE = Gate()
in_child(GATE.renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.before_fork, after_in_parent=GATE.after_fork)
