"""One allocator for a process of a web application: made when it is first asked for, and closed at the end."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MADE = "made"


class Holder:
    """Holds what `make` returns. Safe to use from several threads, and after a fork, as the allocator is itself.

    There is no lock that another thread could hold at a fork: of two allocators that are made at once, of which neither
    has opened anything yet, one is closed again.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: dict[str, Any] = {}
        self._lent: Any = None
        self.forgotten = 0
        weakref.finalize(self, close_all, self._made)

    def get(self) -> Any:
        """The allocator of this process."""
        if self._lent is not None:
            return self._lent
        try:
            return self._made[MADE]
        except KeyError:
            fresh = self._make()
        kept = self._made.setdefault(MADE, fresh)
        if kept is not fresh:
            fresh.close()
        return kept

    def has_made(self, allocator: Any) -> bool:
        """Whether this is the one that was made here, and not one that was lent."""
        return self._made.get(MADE) is allocator

    @contextmanager
    def use(self, allocator: Any) -> Iterator[Any]:
        """Have another one given out meanwhile, to all threads, as in tests. It stays the caller's to close."""
        before, self._lent = self._lent, allocator
        try:
            yield allocator
        finally:
            self._lent = before

    def forget(self) -> None:
        """Make another when it is asked for again; whoever draws from the one before may go on."""
        self.forgotten += 1
        self._made.clear()


def close_all(made: dict[str, Any]) -> None:
    while made:
        made.popitem()[1].close()
