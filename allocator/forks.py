"""After `os.fork()` the child owns nothing: whatever registered here starts anew in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def after_fork(self) -> None: ...


alive: WeakSet[Forkable] = WeakSet()


def renew_all() -> None:
    failures = []
    for thing in list(alive):
        try:
            thing.after_fork()
        except Exception as error:  # the others still hold what is the parent's
            failures.append(error)
    if failures:
        raise failures[0]


def in_child(callback: Callable[[], None]) -> None:
    """Call back in every forked child, where this system knows forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


in_child(renew_all)
