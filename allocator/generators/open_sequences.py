"""The sequences of the tags that an allocator keeps in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from allocator.runtime import forks
from allocator.runtime.worker_pool import check_not_ending, reentrant_call
from allocator.schemes.checks import check_tag
from allocator.schemes.retry import RETRY_PAUSE

if TYPE_CHECKING:
    from allocator.generators.sequence import Sequence


class Sequences(dict[str, "Sequence"]):
    """The sequences of an allocator, by tag. It keeps those that have issued ids.

    Others stay only while a caller holds them, or until their retry is due, so that invalid names use no memory.
    `serving` holds the iterator of each tag, the fast path to an id.
    """

    def __init__(self, make: Callable[[str], Sequence]) -> None:
        super().__init__()
        self.serving: dict[str, Iterator[int]] = {}
        self._make = make
        self._others: WeakValueDictionary[str, Sequence] = WeakValueDictionary()
        self.renew()

    def renew(self) -> None:
        self._lock = threading.RLock()
        self._making: set[str] = set()
        self._failing: deque[tuple[float, Sequence]] = deque()

    def __missing__(self, tag: str) -> Sequence:
        name = check_tag(tag)
        forks.catch_up()
        check_not_ending()
        with self._lock:
            if name in self._making:
                raise reentrant_call(f"tag {name!r}")  # a second object would be missed by `close` and by forks
            try:
                self._making.add(name)
                self._forget_due(monotonic())
                found = self.get(name) or self._others.get(name)
                if found is None:
                    found = self._others[name] = self._make(name)
                return found
            finally:
                self._making.discard(name)

    def keep(self, sequence: Sequence) -> None:
        self.setdefault(sequence.tag, sequence)

    def keep_until_retry(self, sequence: Sequence, now: float) -> None:
        """Keep a failing sequence until its retry is due: a new object would not know that it must wait."""
        self._forget_due(now)
        if sequence._core.pace.failing and sequence.tag not in self:
            self._failing.append((now + RETRY_PAUSE, sequence))

    def _forget_due(self, now: float) -> None:
        with suppress(IndexError):  # another thread may take the last one
            while self._failing[0][0] <= now:
                self._failing.popleft()

    def all(self) -> list[Sequence]:
        others = (reference() for reference in self._others.valuerefs())
        return list(dict.fromkeys([*list(self.values()), *(sequence for sequence in others if sequence is not None)]))
