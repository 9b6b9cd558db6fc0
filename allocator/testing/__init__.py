"""An allocator in memory for the tests of applications, with the same ids in every run.

It uses no database, driver, thread or clock. An error is raised immediately, where an `Allocator` would retry until its
timeout, and the next call tries again. The pytest fixture is `memory_allocator`.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count
from math import inf
from typing import Any, Unpack, cast

from allocator.aio import Settings
from allocator.errors import AllocatorError, InvalidDatabase, InvalidSetting, NodeIdsExhausted, NotCopyable
from allocator.fleet.tag_administration import Tags
from allocator.generators.sequence import Sequence
from allocator.generators.worker_numbers import Workers
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.threads import Background, Work
from allocator.schemes.failover import repaired
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.meteor import MeteorBlocks, MeteorSettings
from allocator.schemes.shared.argument_checks import check_tag, quoted
from allocator.schemes.shared.residues import Seen
from allocator.schemes.slots import Shard
from allocator.schemes.snowflake import SnowflakeBlocks
from allocator.schemes.tag import Tag, settle, unknown
from allocator.schemes.tag_column import Column, NoColumn
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease
from allocator.sync import Allocator

__all__ = ["MemoryAllocator"]

START = 1_767_225_600
"""2026-01-01T00:00:00Z, the start of a test, in seconds since 1970."""


class MemoryBackend:
    """Implements `Backend`, and the part of `Database` that `Tags` uses; `Tags.delete` is not for tests.

    failure: raised by every call.
    """

    shown = "memory"

    def __init__(self) -> None:
        self.failure: AllocatorError | None = None
        self.rows: dict[str, Tag] = {}
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._held: defaultdict[str, set[int]] = defaultdict(set)
        self._forked = False

    def ping(self) -> None:
        """Raise `failure` if it is set; and in a forked child."""
        if self._forked:
            raise NotCopyable("a MemoryAllocator cannot be used after a fork: create a new one in the child")
        if self.failure is not None:
            raise self.failure.again()

    @contextmanager
    def _table(self) -> Iterator[dict[str, Tag]]:
        """Lock the rows for one statement."""
        self.ping()
        with self._lock:
            yield self.rows

    def open_segment(self, template: Tag, create: bool) -> Tag:
        with self._table() as rows:
            if template.name not in rows and not create:
                raise unknown(template.name)
            return rows.setdefault(template.name, template)

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        with self._table() as rows:
            tag = rows.get(name)
            size = settle(tag, name, size, seen, exact)
            assert tag is not None
            last = tag.max_value + size
            rows[name] = replace(tag, max_value=last)
            return tag.residue.ids(last, size)

    def tags(self, template: Tag) -> Tags:
        database: Any = self
        return Tags(lambda: [database], template)

    def ticket(self, kind: str, end: float) -> int:
        return self._count(f"tickets of {check_tag(kind)}")

    def register_node(self) -> int:
        return self._count("nodes")

    def _count(self, counter: str) -> int:
        with self._table():
            self._counts[counter] += 1
            return self._counts[counter]

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease the smallest free number, until it is released."""
        with self._table():
            held = self._held[claim.space]
            number = next(number for number in count() if number not in held)
            if number >> claim.bits:
                raise NodeIdsExhausted(f"all {1 << claim.bits} numbers of space {claim.space!r} are held")
            held.add(number)
            return NumberLease(claim.space, number, claim.holder, claim.length_ms)

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self.ping()

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        with self._table():
            self._held[lease.space].discard(lease.number)

    def create_tables(self) -> None:
        """Do nothing: there are no tables."""

    def troubles(self) -> list[AllocatorError | None]:
        return []

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def abandon(self) -> None:
        self._forked = True

    def fetch_tag(self, name: str) -> Tag | None:
        with self._table() as rows:
            return rows.get(name)

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        with self._table() as rows:
            return [rows[name] for name in sorted(rows) if name > after][:most]

    def create_tag(self, tag: Tag, known: Shard | None = None) -> Shard | None:
        made = replace(tag, skipped=tag.max_value)
        with self._table() as rows:
            return self.settled_shard() if rows.setdefault(tag.name, made) is made else None

    def start_tag(self, fresh: Tag, changes: Mapping[str, int], known: Shard) -> Shard | None:
        return known if self.change_tag(fresh.name, changes) else self.create_tag(fresh, known)

    def change_tag(self, name: str, changes: Mapping[str, int]) -> bool:
        """Change a row that `Tags` has validated; False if it is missing."""
        with self._table() as rows:
            if name not in rows:
                return False
            fields: dict[str, Any] = {column.removeprefix("id_"): value for column, value in changes.items()}
            rows[name] = replace(rows[name], **fields)
            return True

    def repair_segment(self, tag: Tag, above: int | None, known: Shard) -> None:
        with self._table() as rows:
            rows[tag.name] = replace(tag, max_value=repaired(tag, above, 0))

    def settled_shard(self) -> Shard:
        """Memory is in no fleet."""
        return Shard()

    def read_column(self, name: str) -> Column:
        raise NoColumn(f"a MemoryAllocator has no tables, so it cannot read the column {name}")


def since(epoch: int, start: int, limit: int) -> int:
    """The time field at the start of a test; 1 if the layout cannot hold it."""
    return start - epoch if 1 <= start - epoch <= limit else 1


class SynchronousBackground(Background):
    """A thread pool that runs work where it is begun."""

    def start(self, work: Work[Any]) -> None:
        work.is_queued = True
        work.run()


class MemorySequence(Sequence):
    """The ids of one tag, each claimed by itself: none is held in memory."""

    def _advance(self, missing: int = 1) -> int:
        return self._claim_beside(1, {}, True)[0]

    def _claim_beside(self, count: int, others: Seen, exact: bool) -> range:
        self._check_usable()
        if not self._opened:
            self._open()
        return self._terms.backend.claim_segment(self.tag, count, others, exact=exact)


def checked(values: Iterator[int], check: Callable[[], None]) -> Iterator[int]:
    """The values, of which none is lost where `check` raises an error."""

    def draw() -> int | None:
        check()
        return next(values, None)

    return LockedIterator(iter(draw, None))


def meteors(settings: MeteorSettings) -> Iterator[int]:
    blocks = MeteorBlocks(1, since(settings.epoch, START, settings.layout.limit("second")), 1, settings)
    while not blocks.at_end:
        yield from blocks.take()


def snowflakes(form: Format) -> Iterator[int]:
    blocks = SnowflakeBlocks(0, form)
    start = form.epoch + since(form.epoch, START * 1000, form.layout.limit(form.clock))
    return chain.from_iterable(map(blocks.take, count(start)))


class MemoryAllocator(Allocator):
    """An `Allocator` without a database, for tests: the same calls return the same ids in every run.

        with MemoryAllocator() as ids:
            ids.next_id("order")        1

    It takes the settings of `Allocator` except `token` and `shards`; `runway` has no effect. The first id
    of a tag and the first ticket are 1, and the next ones follow without a gap. Meteors and snowflakes begin on
    2026-01-01 as node 1 and worker 0. It never waits and starts no thread. For asyncio: `AsyncAllocator(memory)`.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator uses no database; for ids from a database, create an Allocator")
        if names := [name for name in ("token", "shards") if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator takes no {' or '.join(names)}, since it has no database")
        self._memory = MemoryBackend()
        super().__init__(cast(Any, self._memory), **settings)
        self._terms.background = SynchronousBackground()
        still = Clocks(0.0, START * 1000)
        self._workers = Workers(self._terms, self._overdue, clocks=lambda: still, renews=False)
        endless = meteors(self._meteor._settings), snowflakes(self._snowflake._settings.form)
        for supply, values in zip((self._meteor, self._snowflake), endless, strict=True):
            supply._values = checked(values, self._memory.ping)
        self._snowflake.end = inf

    def _new_sequence(self, template: Tag) -> Sequence:
        return MemorySequence(template, self._terms, self._serving)

    @contextmanager
    def fail(self, error: AllocatorError) -> Iterator[None]:
        """Make every call for ids or tags raise `error`, until the end of the `with` block. No id is lost."""
        if not isinstance(error, AllocatorError):
            raise InvalidSetting(f"fail() needs an AllocatorError, as DatabaseUnavailable('...'), got {quoted(error)}")
        self._memory.failure = error
        try:
            yield
        finally:
            self._memory.failure = None
