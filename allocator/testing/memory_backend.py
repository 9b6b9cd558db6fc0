"""Where the ids of a `MemoryAllocator` come from: what a database does, in memory, without a clock or randomness."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from allocator.errors import AllocatorError, DatabaseUnavailable, NotCopyable
from allocator.fleet.tags import Tags
from allocator.rules.fleet import STATEMENTS
from allocator.schemes.checks import check_tag
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag, settle, unknown
from allocator.testing.memory_rows import Rows

P = ParamSpec("P")
T = TypeVar("T")


class MemoryBackend:
    """Fulfils `Backend`. `failure` is of every call for ids, `is_away` of what asks the database."""

    shown = "memory"

    def __init__(self, statement: str | None = None) -> None:
        self.failure: AllocatorError | None = None
        self.is_away = False
        self._lock = threading.RLock()
        self._rows = Rows(self._run)
        self._each_counts = statement not in (None, STATEMENTS[0])
        self._tickets: Counter[str] = Counter()
        self._nodes = 0
        self._forked = False

    # -- trouble, as a test wants it

    def check(self) -> None:
        """Raise what every call for ids raises at present, also where memory could serve it."""
        if self.failure is not None:
            raise self.failure.again()

    def _run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._forked:
            raise NotCopyable("ids in memory are of one process, and this one was forked: make a new MemoryAllocator")
        self.check()
        if self.is_away:
            raise DatabaseUnavailable("the database is away, as the test wants it")
        with self._lock:
            return verb(*args, **kwargs)

    # -- segments and tags

    def open_segment(self, template: Tag, create: bool) -> Tag:
        return self._run(self._opened, template, create)

    def _opened(self, template: Tag, create: bool) -> Tag:
        if create:
            self._rows.create_tag(template)
        found = self._rows.fetch_tag(template.name)
        if found is None:
            raise unknown(template.name)
        return found

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return []  # each is opened alone

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return {}

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        return self._run(self._claimed, name, size, seen, exact)

    def _claimed(self, name: str, size: int, seen: Seen, exact: bool) -> range:
        tag = self._rows.fetch_tag(name)
        size = settle(tag, name, size, seen, exact)
        if tag is None:
            raise unknown(name)
        last = tag.max_value + size
        self._rows.raise_to(tag, last)
        return tag.lane.ids(last, size)

    def tags(self, template: Tag) -> Tags:
        rows: Any = self._rows  # does what `Tags` asks of a database
        return Tags(lambda: [rows], template)

    # -- the other schemes

    def ticket(self, kind: str, end: float) -> int:
        return self._run(self._drawn, check_tag(kind))

    def _drawn(self, kind: str) -> int:
        counter = kind if self._each_counts else ""
        self._tickets[counter] += 1
        return self._tickets[counter]

    def register_node(self) -> int:
        return self._run(self._registered)

    def _registered(self) -> int:
        self._nodes += 1
        return self._nodes

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        """There is nobody else: worker 0, for the whole of the time."""
        return self._run(lambda: Lease(0, "memory", claim.now, claim.until))

    def troubles(self) -> list[AllocatorError | None]:
        return []

    def close(self) -> None:
        """Nothing is open."""

    def abandon(self) -> None:
        self._forked = True
