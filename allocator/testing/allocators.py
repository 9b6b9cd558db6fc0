"""`MemoryAllocator` and `AsyncMemoryAllocator`, and their supplies, which are synchronous and without the clock.

Work runs in the calling thread. An error is raised immediately, where an `Allocator` would retry until its timeout, and
the next call tries again. Time starts at a fixed moment and advances as ids are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from math import inf
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from allocator.aio import AsyncAllocator, Settings
from allocator.backend import check_statement
from allocator.errors import AllocatorClosed, AllocatorError, InvalidDatabase, InvalidSetting
from allocator.generators.meteor import MeteorSupply
from allocator.generators.sequence import Sequence
from allocator.generators.snowflake import SnowflakeSupply
from allocator.generators.supply import Supply
from allocator.generators.worker_numbers import Workers
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.thread_pool import Background, Work
from allocator.schemes.meteor import MeteorBlocks, NodeClaim, check_node
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.residues import Seen
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.snowflake import NOTHING, LeaseClaim, LeasedSnowflake
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
DATABASE_SETTINGS = ("token", "headers", "shards", "shard_hosts", "fleet")


def since(epoch: int, start: int, limit: int) -> int:
    """The time field at the start of a test; 1 if the layout cannot hold it."""
    return start - epoch if 1 <= start - epoch <= limit else 1


class SynchronousBackground(Background):
    """A thread pool that runs work in `submit`, before it returns."""

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Work[T]:
        if self.closed.done():
            raise AllocatorClosed
        work = Work(lambda: call(*args, **kwargs))
        work.run()
        return work


class FailingIterator(LockedIterator[int]):
    """Ids in memory that cannot be drawn while `fail` is in effect."""

    __slots__ = ("_backend",)

    def __init__(self, values: Iterable[int], backend: MemoryBackend) -> None:
        super().__init__(values)
        self._backend = backend

    def __next__(self) -> int:
        self._backend.check()
        return super().__next__()

    def take(self, count: int) -> list[int]:
        self._backend.check()
        return super().take(count)


class Immediate(Supply):
    """Mixin of the supplies of a `MemoryAllocator`: no waiting, no retry pause."""

    _backend: MemoryBackend

    def _serve(self, values: Iterable[int]) -> int | None:
        first = super()._serve(values)
        self._values: Iterator[int] = FailingIterator(self._values, self._backend)
        return first

    def _raise_unless_passing(self, error: AllocatorError | None) -> None:
        if error is not None:
            raise error.again()

    def _refused(self, claim: Any, error: AllocatorError, now: float) -> None:
        super()._refused(claim, error, now)
        self._allow_retry()

    def _allow_retry(self) -> None:
        """Skip the pause after a failure, since a test must not wait."""
        if self._core.pace.under_way is None:
            self._core.pace.clear()


class MemorySequence(Immediate, Sequence):
    def _start_claim(self, size: int | None, seen: Seen, exact: bool) -> Work[range]:
        self._backend.check()
        work = super()._start_claim(size, seen, exact)
        with self._lock:
            self._allow_retry()
        return work


class MemoryMeteors(Immediate, MeteorSupply):
    def _work(self, claim: NodeClaim) -> MeteorBlocks:
        layout, epoch = self._settings.layout, self._settings.epoch
        node = self._backend.register_node()
        check_node(node, layout)
        return MeteorBlocks(node, since(epoch, START, layout.limit("second")), SEED, epoch, layout)


class SteadySnowflake(LeasedSnowflake):
    """A snowflake whose time advances to the next millisecond only when the ids of one are used up."""

    @property
    def _start(self) -> int:
        return self.epoch + since(self.epoch, START * 1000, self.layout.limit("timestamp"))

    def take(self, now: float) -> range:
        if self._blocks is None:
            return NOTHING
        return self._blocks.take(max(self._blocks.last + 1, self._start))

    def ends_at(self, millisecond: int) -> float:
        return inf

    def want(self, now: float, wall: float) -> LeaseClaim | Wait | None:
        if self.lease is not None or self.pace.busy(now):
            return None
        return self.pace.begin(LeaseClaim(None, self._start, self._start + self.span), now)


class MemorySnowflakes(Immediate, SnowflakeSupply):
    def _new_core(self) -> LeasedSnowflake:
        return SteadySnowflake(self._settings.lease, self._settings.epoch, self._settings.layout)


class MemoryAllocator(Allocator):
    """An `Allocator` without a database, for tests: the same calls return the same ids in every run.

        with MemoryAllocator() as ids:
            ids.next_id("order")        1

    It takes the settings of `Allocator` except `token`, `headers`, `shards`, `shard_hosts` and `fleet`; `runway` has
    no effect, since the speed of a test varies. The first id of a tag and the first ticket are 1. Meteors and
    snowflakes begin on 2026-01-01 as node 1 and worker 0. It never waits and starts no thread.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    _background_type = SynchronousBackground
    _sequence_type = MemorySequence

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator uses no database; for ids from a database, create an Allocator")
        if names := [name for name in DATABASE_SETTINGS if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator takes no {' or '.join(names)}, since it has no database")
        self._memory = MemoryBackend(check_statement(settings.get("tickets")))
        rest: Any = {name: value for name, value in settings.items() if name not in (*DATABASE_SETTINGS, "tickets")}
        super().__init__(cast(Any, self._memory), **rest)
        self._terms = replace(self._terms, runway=0.0)
        self._workers = Workers(
            self._memory, self._background, self._terms.timeout, self._overdue, clocks=lambda: STILL, renews=False
        )
        shared = (self._memory, self._background, self._terms)
        self._meteor = MemoryMeteors(*shared, self._meteor._settings, owner=self)
        self._snowflake = MemorySnowflakes(*shared, self._snowflake._settings, owner=self)

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
