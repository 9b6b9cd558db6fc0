"""Iterators that serve ids with one C call each, and with a lock on builds without the GIL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FREE_THREADED = "free-threading" in sys.version
"""Whether this build can run without the GIL. `sys._is_gil_enabled` may not decide it: an extension module turns the
GIL on while it is being imported, perhaps on another thread, and off again."""


class LockedIterator(Generic[T]):
    """A locked iterator: without the GIL, two threads can get the same value from `next` on a range.

    The lock is reentrant, since a signal handler or destructor may draw while this thread holds it.
    """

    __slots__ = ("_iterator", "_lock")

    def __init__(self, values: Iterable[T]) -> None:
        self._iterator = iter(values)
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._iterator)

    def take(self, count: int) -> list[T]:
        """The next `count` values, or fewer at the end. Takes the lock once, which is most of the cost of a value."""
        with self._lock:
            return list(islice(self._iterator, count))

    def __length_hint__(self) -> int:
        return length_hint(self._iterator)

    def empty(self) -> None:
        """Serve nothing more. Takes no lock: in a forked child, a thread that is gone may hold it.

        The values are replaced, since another thread may be advancing them: moved by two threads at once, a range can
        run past its end.
        """
        before, self._iterator = self._iterator, iter(())
        self._lock = threading.RLock()
        if isinstance(before, LockedIterator):
            before.empty()


iterator: Callable[[Iterable[T]], Iterator[T]] = LockedIterator if FREE_THREADED else iter
take: Callable[[Any, int], Iterable[Any]] = (lambda values, count: values.take(count)) if FREE_THREADED else islice


def first_and_rest(values: Iterable[T]) -> tuple[T, Iterator[T]]:
    """The first of `values`, taken before another thread can see them, and an iterator over the rest."""
    served = iterator(values)
    return next(served), served
