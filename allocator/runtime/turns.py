"""Calls of threads that take turns, where one run does the work of all that were called before it began."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds for which a call waits for its turn; a run may stand for long, or wait for this very call."""


class Turns:
    """Of the calls that wait while one runs, the first runs for all of them.

    Where that run fails, or takes too long, the others run at once, as they would alone: else each would wait for the
    timeouts of all before it.
    """

    def __init__(self) -> None:
        self._moments = itertools.count()
        self._turn = threading.RLock()
        self._began, self._ended_well = -1, True
        """The last run."""

    def call(self) -> int:
        """The moment of a call."""
        return next(self._moments)

    def run(self, call: int, work: Callable[[], T]) -> T | None:
        """The result of `work`; None if a run that began after the call has done it."""
        if not self._turn.acquire(timeout=PATIENCE):
            return work()
        try:
            if call > self._began:
                return self._run(work)
            if self._ended_well:
                return None
        finally:
            self._turn.release()
        return work()

    def _run(self, work: Callable[[], T]) -> T:
        began = self.call()
        self._began, self._ended_well = began, False
        result = work()
        self._began, self._ended_well = began, True
        return result
