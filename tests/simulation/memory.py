"""A fork's copy of a process: every object of its memory once more, as it is at that moment, locks held and all.

Only the thread that forks is there in the child; what the others were doing is never gone on with.
"""

from __future__ import annotations

import weakref
from collections import deque
from copy import copy
from types import FunctionType, MethodType
from typing import Any, TypeVar

from allocator.runtime.forks import RANGES
from simulation import threads
from simulation.network import Engine
from simulation.observed import ObservedAllocator, Watched

T = TypeVar("T")

COPIED = ("allocator.", "simulation.threads")
"""The modules whose objects hold what a process has; all others are values, or outside of it."""
SHARED = (FunctionType, type, threads.Thread)


class Finalizer:
    """Of the child's own copy: the parent's stays."""

    atexit = False

    def detach(self) -> None:
        pass


def forked(thing: T) -> T:
    """The child's own copy of an allocator or generator."""
    copied: T = Copier().copy(thing)
    return copied


class Copier:
    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []

    def copy(self, thing: Any) -> Any:
        if id(thing) not in self._made:
            self._made[id(thing)] = self._copied(thing)
            self._kept.append(thing)  # so that no other object gets its number
        return self._made[id(thing)]

    def _copied(self, thing: Any) -> Any:
        if isinstance(thing, weakref.finalize):
            return Finalizer()
        if isinstance(thing, RANGES):
            return copy(thing)
        if isinstance(thing, MethodType):
            return MethodType(thing.__func__, self.copy(thing.__self__))
        if isinstance(thing, Engine):
            return Engine(thing._place, thing._timeout)
        if isinstance(thing, weakref.WeakValueDictionary):
            return weakref.WeakValueDictionary({key: self.copy(value) for key, value in thing.items()})
        if isinstance(thing, dict | list | deque):
            return self._collection(thing)
        return self._object(thing) if self._is_held(thing) else thing

    def _is_held(self, thing: Any) -> bool:
        held = type(thing).__module__.startswith(COPIED) or isinstance(thing, ObservedAllocator | Watched)
        return held and not isinstance(thing, (*SHARED, Exception)) and not isinstance(thing, tuple)

    def _collection(self, thing: Any) -> Any:
        made = self._made[id(thing)] = type(thing).__new__(type(thing))
        for name, value in getattr(thing, "__dict__", {}).items():
            made.__dict__[name] = self.copy(value)
        if isinstance(thing, dict):
            made.update({key: self.copy(value) for key, value in thing.items()})
        else:
            made.extend(self.copy(one) for one in thing)
        return made

    def _object(self, thing: Any) -> Any:
        made = self._made[id(thing)] = object.__new__(type(thing))
        for kind in type(thing).__mro__:
            for name in kind.__dict__.get("__slots__", ()):
                if name not in {"__weakref__", "__dict__"} and hasattr(thing, name):
                    object.__setattr__(made, name, self.copy(getattr(thing, name)))
        for name, value in getattr(thing, "__dict__", {}).items():
            made.__dict__[name] = self.copy(value)
        return made
