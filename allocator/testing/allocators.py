"""`MemoryAllocator` and `AsyncMemoryAllocator`: claims without threads, waiting or the clock.

Both faces draw ids by generators that say what to wait for; those of this file wait for nothing. An error is raised
immediately, where an `Allocator` would retry until its timeout, and the next call tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import chain, count
from math import inf
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from allocator.aio import AsyncAllocator, Settings
from allocator.errors import AllocatorError, InvalidDatabase, InvalidSetting
from allocator.generators.sequence import Sequence
from allocator.generators.supply import Ended
from allocator.generators.worker_numbers import Workers
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.thread_pool import Background, Work
from allocator.runtime.waiting import Outcome
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.meteor import MeteorBlocks, MeteorSettings
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.retry_pace import Pace, Wait
from allocator.schemes.snowflake import SnowflakeBlocks
from allocator.schemes.worker_number_lease import Clocks
from allocator.sync import Allocator
from allocator.testing.memory_backend import MemoryBackend

P = ParamSpec("P")
T = TypeVar("T")

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


class Unpaced(Pace[Claim]):
    """A test does not wait until a call may be tried again."""

    def pause(self, error: AllocatorError, now: float, begun_at: float | None = None) -> None:
        """Do nothing."""


class MemorySequence(Sequence):
    """The ids of one tag. Each is drawn under the lock, after a check whether a test wants the call to fail."""

    _ids: Iterator[int] = iter(())

    def _new_core(self) -> Segments:
        core = super()._new_core()
        core.pace = Unpaced(inf)
        return core

    def _serve(self, values: Iterable[int]) -> int | None:
        self._ids = iter(values)
        return next(self._ids, None)

    def _at_hand(self, now: float) -> int | None:
        return next(self._ids, None)

    def _want(self, now: float, missing: int) -> Claim | Wait | None:
        return super()._want(0.0, missing)  # the same claims, however fast a test is

    def _check_entry(self) -> None:
        super()._check_entry()
        cast(MemoryAllocator, self._owner)._memory.check()

    def _advance(self, missing: int = 1) -> int | Ended | Wait:
        while isinstance(step := super()._advance(missing), Outcome):  # a claim that was made in here, or beside
            if error := step.result(self._terms.timeout):
                raise error.again()
        return step


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

    It takes the settings of `Allocator` except `token`, `headers` and `shards`; `runway` has
    no effect, since the speed of a test varies. The first id of a tag and the first ticket are 1. Meteors and
    snowflakes begin on 2026-01-01 as node 1 and worker 0. It never waits and starts no thread.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator uses no database; for ids from a database, create an Allocator")
        if names := [name for name in DATABASE_SETTINGS if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator takes no {' or '.join(names)}, since it has no database")
        self._memory = MemoryBackend()
        super().__init__(cast(Any, self._memory), **settings)
        self._terms = replace(self._terms, runway=0.0)
        self._background = SynchronousBackground()
        self._workers = Workers(
            self._memory, self._background, self._terms.timeout, self._overdue, clocks=lambda: STILL, renews=False
        )
        endless = meteors(self._meteor._settings), snowflakes(self._snowflake._settings.form)
        for supply, values in zip((self._meteor, self._snowflake), endless, strict=True):
            supply._background, supply._values = self._background, checked(values, self._memory.check)
        self._snowflake.end = inf

    def _new_sequence(self, tag: str) -> Sequence:
        template = replace(self._template, name=tag)
        return MemorySequence(template, self._memory, self._background, self._terms, self._sequences, self)

    def fail(self, error: AllocatorError) -> AbstractContextManager[object]:
        """Make every call for ids or tags raise `error`, until `recover` or the end of a `with` block.

        No id is lost: ids in memory are served afterwards.
        """
        if not isinstance(error, AllocatorError):
            raise InvalidSetting(
                f"fail() needs an AllocatorError such as DatabaseUnavailable('...'), got {quoted(error)}"
            )
        self._memory.failure = error
        return call_at_end(self.recover)

    def go_away(self) -> AbstractContextManager[object]:
        """Simulate an outage of the database, until `recover` or the end of a `with` block.

        Ids in memory are still served, as in a real outage; then calls raise `DatabaseUnavailable` without waiting.
        """
        self._memory.is_away = True
        return call_at_end(self.recover)

    def recover(self) -> None:
        """End `fail` and `go_away`."""
        self._memory.failure, self._memory.is_away = None, False

    def __repr__(self) -> str:
        return "<MemoryAllocator>"


def call_at_end(call: Callable[[], None]) -> AbstractContextManager[object]:
    """A context manager that calls `call` at its end; using it is optional."""
    stack = ExitStack()
    stack.callback(call)
    return stack


class AsyncMemoryAllocator(AsyncAllocator):
    """`MemoryAllocator` for asyncio: the same settings, or a `MemoryAllocator` to share.

    Its `memory` is the `MemoryAllocator`, for `fail`, `go_away` and `recover`. Not bound to an event loop.
    """

    def __init__(self, memory: MemoryAllocator | None = None, **settings: Unpack[Settings]) -> None:
        if memory is not None and not isinstance(memory, MemoryAllocator):
            raise InvalidDatabase(
                f"an AsyncMemoryAllocator can only share a MemoryAllocator, got {type(memory).__name__}"
            )
        if memory is None:
            super().__init__(MemoryAllocator(**settings))
        else:
            super().__init__(memory, **settings)
        self._owned = memory is None

    @property
    def memory(self) -> MemoryAllocator:
        return cast(MemoryAllocator, self._allocator)

    def __repr__(self) -> str:
        return "<AsyncMemoryAllocator>"
