"""After `os.fork()` the child owns nothing: every allocator in it starts anew."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def after_fork(self) -> None: ...


alive: WeakSet[Forkable] = WeakSet()


def renew_all() -> None:
    for allocator in list(alive):
        allocator.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew_all)
