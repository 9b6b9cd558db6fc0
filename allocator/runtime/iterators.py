"""Iterators that serve ids with one C call each, and with a lock on builds without the GIL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Generic, TypeVar

T = TypeVar("T")

WITHOUT_GIL = not getattr(sys, "_is_gil_enabled", lambda: True)()


class LockedIterator(Generic[T]):
    """A locked iterator: without the GIL, two threads can get the same value from `next` on a range."""

    __slots__ = ("_iterator", "_lock")

    def __init__(self, values: Iterable[T]) -> None:
        self._iterator = iter(values)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._iterator)

    def __length_hint__(self) -> int:
        return length_hint(self._iterator)


iterator: Callable[[Iterable[T]], Iterator[T]] = LockedIterator if WITHOUT_GIL else iter
