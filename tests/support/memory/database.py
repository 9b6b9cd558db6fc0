"""A database of the test's own, in memory: as exact as a real one, and it fails when it is told to."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

from allocator.generators.supply import Terms
from allocator.runtime.thread_pool import Background
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.sync import Sequence, Sequences
from allocator.testing.memory_backend import MemoryBackend


class MemorySource(MemoryBackend):
    """Counts its claims, and holds them up at a gate. `failure` is of claims alone."""

    def __init__(self, **settings: int) -> None:
        super().__init__()
        self.template = settings
        self.claims: list[range] = []
        self.attempts = 0
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()

    def check(self) -> None:
        """Tags are opened also while claims fail."""

    def open_segment(self, template: Tag, create: bool) -> Tag:
        return super().open_segment(replace(template, **self.template), create)

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        self.attempts += 1
        self.asked.set()
        assert self.gate.wait(10)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            self.claims.append(super().claim_segment(name, size, seen, exact=exact))
            return self.claims[-1]


def sequence(source: MemorySource, tag: str = "order", create: bool = True, timeout: float = 5.0) -> Sequence:
    template = Tag(tag)
    return Sequence(template, source, Background(), Terms(create, 60.0, timeout), Sequences(partial(sequence, source)))
