"""A database of the test's own, in memory: as exact as a real one, and it fails when it is told to."""

from __future__ import annotations

import threading
from collections import abc
from collections.abc import Mapping
from dataclasses import replace

from allocator.errors import AllocatorError, UnknownTag
from allocator.generators.supply import Terms
from allocator.runtime.worker_pool import Background
from allocator.schemes.residues import ALL, Seen, mark
from allocator.schemes.segment import Claim
from allocator.schemes.tag import Tag, settle
from allocator.sync import Sequence


class MemorySource:
    def __init__(self, **settings: int) -> None:
        self.template = settings
        self.rows: dict[str, Tag] = {}
        self.claims: list[range] = []
        self.batches: list[list[str]] = []
        self.attempts = 0
        self.failure: AllocatorError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self._lock = threading.Lock()

    def open_segment(self, template: Tag, create: bool) -> Tag:
        with self._lock:
            if template.name not in self.rows and not create:
                raise UnknownTag(template.name)
            return self.rows.setdefault(template.name, replace(template, **self.template))

    def open_segments(self, templates: abc.Sequence[Tag], create: bool) -> list[Tag]:
        with self._lock:
            return [self.rows[template.name] for template in templates if template.name in self.rows]

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        self.batches.append(list(claims))
        return {name: self.claim_segment(name, claim.size, claim.seen) for name, claim in claims.items()}

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        self.attempts += 1
        self.asked.set()
        assert self.gate.wait(10)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            row, low = self.rows.get(name), mark(seen, ALL)
            if row is None or row.max_value < low or row.remaining < size:
                size = settle(row, name, size, seen, exact)
            assert row is not None
            self.rows[name] = replace(row, max_value=row.max_value + size)
            self.claims.append(range(row.max_value + 1, row.max_value + size + 1))
            return self.claims[-1]


def sequence(source: MemorySource, tag: str = "order", create: bool = True, timeout: float = 5.0) -> Sequence:
    template = Tag(tag)
    return Sequence(template, source, Background(), Terms(create, 60.0, timeout), {})
