"""One allocator per process of a web application, made on first use and closed at exit."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MADE = "made"


class Holder:
    """Holds the allocator that `make` returns. Thread-safe and fork-safe, like the allocator.

    It has no lock, since another thread could hold that during a fork. If two threads make an allocator at the same
    time, one of the two is closed before it connects.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: dict[str, Any] = {}
        self._replacement: Any = None
        self.forgotten = 0
        weakref.finalize(self, close_all, self._made)

    def get(self) -> Any:
        """The allocator of this process."""
        if self._replacement is not None:
            return self._replacement
        try:
            return self._made[MADE]
        except KeyError:
            fresh = self._make()
        kept = self._made.setdefault(MADE, fresh)
        if kept is not fresh:
            fresh.close()
        return kept

    def has_made(self, allocator: Any) -> bool:
        """Tell whether this holder made the allocator; False for one passed to `use`."""
        return self._made.get(MADE) is allocator

    @contextmanager
    def use(self, allocator: Any) -> Iterator[Any]:
        """Return another allocator to all threads within a `with` block, for tests. The caller closes it."""
        before, self._replacement = self._replacement, allocator
        try:
            yield allocator
        finally:
            self._replacement = before

    def forget(self) -> None:
        """Make a new allocator on the next use. The old one stays open for its users."""
        self.forgotten += 1
        self._made.clear()


def close_all(made: dict[str, Any]) -> None:
    while made:
        made.popitem()[1].close()
