"""Keeps forks out of the moments in which SQLite has a file locked.

What a process has locked, SQLite keeps in the memory of that process. A child that is forked while another thread is in
the middle of a statement inherits that memory, and nobody who would clear it: for the child the file stays locked, on
every connection. So a fork waits until no statement is under way, and those that come next wait for the fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from allocator.runtime.forks import in_child

PATIENCE = 2.0
"""Seconds that a fork waits. What takes longer waits for another process as a rule, and has nothing locked."""


class Gate:
    """Between the statements and the forks of one process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a child, which has none of the threads that were under way."""
        self._changed = threading.Condition()  # its lock may be taken again by a signal handler that forks
        self._under_way: set[int] = set()
        self._forks = 0

    @contextmanager
    def statement(self) -> Iterator[None]:
        """In the middle of another one of its thread, this says nothing."""
        me = threading.get_ident()
        if me in self._under_way:
            yield
            return
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._forks, PATIENCE)
                self._under_way.add(me)
            yield
        finally:
            with self._changed:
                self._under_way.discard(me)
                self._changed.notify_all()

    def before_fork(self) -> None:
        """A statement of the very thread that forks cannot be waited for."""
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: self._under_way <= {threading.get_ident()}, PATIENCE)

    def after_fork(self) -> None:
        """In the parent, also where there is no child since the fork failed, or `before_fork` was interrupted."""
        with self._changed:
            self._forks = max(0, self._forks - 1)
            self._changed.notify_all()


GATE = Gate()
in_child(GATE.renew)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.before_fork, after_in_parent=GATE.after_fork)
