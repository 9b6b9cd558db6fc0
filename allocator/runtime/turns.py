"""Calls of threads that take turns, where one run does the work of all that were called before it began."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds for which a call waits for its turn; a run may stand for long, or wait for this very call."""


class Run:
    def __init__(self) -> None:
        self.ended, self.is_well = Event(), False


class Turns:
    """Of the calls that wait while one runs, the first runs for all of them.

    Where that run fails, or takes too long, the others run at once, as they would alone: else each would wait for the
    timeouts of all before it.
    """

    def __init__(self) -> None:
        self._last = Run()
        self._last.ended.set()
        self._next: dict[str, Run] = {}
        """The run that has not begun. Set by one step, so that nothing here needs a lock."""

    def run(self, work: Callable[[], T]) -> T | None:
        """The result of `work`; None if a run that began after the call has done it."""
        mine = Run()
        run = self._next.setdefault("", mine)
        if run is not mine:
            return None if run.ended.wait(PATIENCE) and run.is_well else work()
        try:
            before, self._last = self._last, mine
            try:
                before.ended.wait(PATIENCE)
            finally:
                self._next.clear()  # who calls from here on waits for the run after this one
            result = work()
            mine.is_well = True
            return result
        finally:
            mine.ended.set()
