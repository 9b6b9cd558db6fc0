"""Calls of threads that take turns, where one run does the work of all that were called before it began."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from allocator.runtime.threads import Work

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds for which a call waits for its turn; a run may stand for long, or wait for this very call."""


class Turns:
    """Of the calls that wait while one runs, the first runs for all of them.

    Where that run fails, or takes too long, the others run at once, as they would alone: else each would wait for the
    timeouts of all before it. A run is work that ends with whether it went well. There is no lock, which a signal
    handler that calls could meet.
    """

    def __init__(self) -> None:
        self._last = Work(bool)
        self._last.end(True)
        self._next: dict[str, Work[bool]] = {}
        """The run that has not begun. Set by one step."""

    def run(self, work: Callable[[], T]) -> T | None:
        """The result of `work`; None if a run that began after the call has done it."""
        mine, is_well = Work(bool), False
        try:
            run = self._next.setdefault("", mine)
            if run is not mine:
                with suppress(TimeoutError):
                    if run.result(PATIENCE):
                        return None
                return work()
            before, self._last = self._last, mine
            with suppress(TimeoutError):
                before.result(PATIENCE)
            self._next.clear()  # who calls from here on waits for the run after this one
            result = work()
            is_well = True
            return result
        finally:
            if self._next.get("") is mine:  # a signal handler raised before it began
                self._next.clear()
            mine.end(is_well)
