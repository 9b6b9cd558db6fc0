"""`MemoryAllocator` and `AsyncMemoryAllocator`: claims without threads, waiting or the clock.

An error is raised immediately, where an `Allocator` would retry until its timeout, and the next call tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from math import inf
from typing import Any, Unpack, cast

from allocator.aio import AsyncAllocator, Settings
from allocator.errors import AllocatorError, InvalidDatabase, InvalidSetting
from allocator.generators.sequence import Sequence
from allocator.generators.worker_numbers import Workers
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.threads import Background, Work
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.meteor import MeteorBlocks, MeteorSettings
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.residues import Seen
from allocator.schemes.snowflake import SnowflakeBlocks
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import Clocks
from allocator.sync import Allocator
from allocator.testing.memory_backend import MemoryBackend

START = 1_767_225_600
"""2026-01-01T00:00:00Z, the start of a test, in seconds since 1970."""
STILL = Clocks(0.0, START * 1000)
"""The clocks of worker numbers: no lease ends before its block."""
SEED = 1
DATABASE_SETTINGS = ("token", "headers", "shards")


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
    layout, epoch = settings.layout, settings.epoch
    blocks = MeteorBlocks(1, since(epoch, START, layout.limit("second")), SEED, epoch, layout)
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

    It takes the settings of `Allocator` except `token`, `headers` and `shards`; `runway` has no effect. The first id
    of a tag and the first ticket are 1, and the next ones follow without a gap. Meteors and snowflakes begin on
    2026-01-01 as node 1 and worker 0. It never waits and starts no thread.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator uses no database; for ids from a database, create an Allocator")
        if names := [name for name in DATABASE_SETTINGS if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator takes no {' or '.join(names)}, since it has no database")
        self._memory = MemoryBackend()
        super().__init__(cast(Any, self._memory), **settings)
        self._terms.background = SynchronousBackground()
        self._workers = Workers(self._terms, self._overdue, clocks=lambda: STILL, renews=False)
        endless = meteors(self._meteor._settings), snowflakes(self._snowflake._settings.form)
        for supply, values in zip((self._meteor, self._snowflake), endless, strict=True):
            supply._values = checked(values, self._memory.check)
        self._snowflake.end = inf

    def _new_sequence(self, template: Tag) -> Sequence:
        return MemorySequence(template, self._terms, self._serving)

    @contextmanager
    def fail(self, error: AllocatorError) -> Iterator[None]:
        """Make every call for ids or tags raise `error`, until the end of the `with` block. No id is lost."""
        if not isinstance(error, AllocatorError):
            raise InvalidSetting(
                f"fail() needs an AllocatorError such as DatabaseUnavailable('...'), got {quoted(error)}"
            )
        self._memory.failure = error
        try:
            yield
        finally:
            self._memory.failure = None

    def __repr__(self) -> str:
        return "<MemoryAllocator>"


class AsyncMemoryAllocator(AsyncAllocator):
    """`MemoryAllocator` for asyncio: the same settings, or a `MemoryAllocator` to share.

    Its `memory` is the `MemoryAllocator`, for `fail`. Not bound to an event loop.
    """

    def __init__(self, memory: MemoryAllocator | None = None, **settings: Unpack[Settings]) -> None:
        if not isinstance(memory, MemoryAllocator | None):
            raise InvalidDatabase(
                f"an AsyncMemoryAllocator can only share a MemoryAllocator, got {type(memory).__name__}"
            )
        shared, settings = (MemoryAllocator(**settings), {}) if memory is None else (memory, settings)
        super().__init__(shared, **settings)
        self._owned = memory is None

    @property
    def memory(self) -> MemoryAllocator:
        return cast(MemoryAllocator, self._allocator)

    def __repr__(self) -> str:
        return "<AsyncMemoryAllocator>"
