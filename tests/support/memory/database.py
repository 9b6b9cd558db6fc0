"""A database of the test's own, in memory: as exact as a real one, and it fails when it is told to."""

import threading
from collections.abc import Callable

from allocator.errors import AllocatorError
from allocator.schemes.shared.residues import Seen
from allocator.testing import MemoryBackend


class Source(MemoryBackend):
    """Notes its claims, holds them up at a gate, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[range] = []
        self.seen: list[object] = []
        self.failing: dict[str, AllocatorError] = {}
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        self.answered: Callable[[], object] = lambda: None

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        self.seen.append(seen)
        self.asked.set()
        assert self.gate.wait(10)
        self.answered()
        if name in self.failing:
            raise self.failing[name]
        self.claims.append(super().claim_segment(name, size, seen, exact=exact))
        return self.claims[-1]

    def abandon(self) -> None:
        """A child may go on with it, as with a database."""

    def register_node(self) -> int:
        self.answered()
        return super().register_node()
