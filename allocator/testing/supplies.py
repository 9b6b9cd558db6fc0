"""The supplies of a `MemoryAllocator`: those of an `Allocator`, synchronous and without the clock.

Work runs in the calling thread. An error is raised immediately, where an `Allocator` would retry until its timeout, and
the next call tries again. Time starts at a fixed moment and advances as ids are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from math import inf
from typing import ParamSpec, TypeVar

from allocator.errors import AllocatorClosed, AllocatorError
from allocator.generators.meteor import MeteorSupply
from allocator.generators.sequence import Sequence
from allocator.generators.snowflake import SnowflakeSupply
from allocator.generators.supply import Ended, Supply
from allocator.generators.worker import AsyncWorkerLease, HeldNumber, WorkerLease
from allocator.runtime.iterators import LockedIterator
from allocator.runtime.worker_pool import Background, Work
from allocator.schemes.meteor import MeteorBlocks, NodeClaim, check_node
from allocator.schemes.retry import Wait
from allocator.schemes.snowflake import NOTHING, LeaseClaim, LeasedSnowflake
from allocator.testing.memory_backend import MemoryBackend

P = ParamSpec("P")
T = TypeVar("T")

START = 1_767_225_600
"""2026-01-01T00:00:00Z, the start of a test, in seconds since 1970."""
SEED = 1


def since(epoch: int, start: int, limit: int) -> int:
    """The time field at the start of a test; 1 if the layout cannot hold it."""
    return start - epoch if 1 <= start - epoch <= limit else 1


class SynchronousBackground(Background):
    """A worker pool that runs work in `submit`, before it returns."""

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self.closed.is_set():
            raise AllocatorClosed
        work = Work(lambda: call(*args, **kwargs))
        work.run()
        return work.future


class FailingIterator(LockedIterator[int]):
    """Ids in memory that cannot be drawn while `fail` is in effect."""

    __slots__ = ("_backend",)

    def __init__(self, values: Iterable[int], backend: MemoryBackend) -> None:
        super().__init__(values)
        self._backend = backend

    def __next__(self) -> int:
        self._backend.check()
        return super().__next__()


class Immediate(Supply):
    """Mixin of the supplies of a `MemoryAllocator`: no waiting, no retry pause."""

    __slots__ = ()

    _backend: MemoryBackend

    def _serve(self, values: Iterable[int]) -> int | None:
        first = super()._serve(values)
        self._values: Iterator[int] = FailingIterator(self._values, self._backend)
        return first

    def _raise_unless_passing(self, error: AllocatorError | None) -> None:
        if error is not None:
            raise error.again()

    def _forget(self, ended: Ended) -> None:
        super()._forget(ended)
        self._allow_retry()

    def _allow_retry(self) -> None:
        """Skip the pause after a failure, since a test must not wait."""
        if self._pace.under_way is None:
            self._pace.clear()


class MemorySequence(Immediate, Sequence):
    __slots__ = ()

    def _start_reserve(self, count: int) -> Future[range]:
        self._backend.check()
        future = super()._start_reserve(count)
        with self._lock:
            self._allow_retry()
        return future


class Unending(HeldNumber):
    """Mixin of the worker leases of a `MemoryAllocator`: no thread, and no end before that of the block."""

    def _keep(self, *_: object) -> None:
        """Do nothing: it is never renewed."""

    def left(self) -> float:
        return self._length_ms / 1000 if self in self._workers.held else 0.0


class MemoryWorkerLease(Unending, WorkerLease):
    pass


class AsyncMemoryWorkerLease(Unending, AsyncWorkerLease):
    pass


class MemoryMeteors(Immediate, MeteorSupply):
    __slots__ = ()

    def _work(self, claim: NodeClaim) -> MeteorBlocks:
        layout, epoch = self._settings.layout, self._settings.epoch
        node = self._backend.register_node()
        check_node(node, layout)
        return MeteorBlocks(node, since(epoch, START, layout.limit("second")), SEED, epoch, layout)


class SteadySnowflake(LeasedSnowflake):
    """A snowflake whose time advances to the next millisecond only when the ids of one are used up."""

    __slots__ = ()

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
    __slots__ = ()

    def _new_core(self) -> LeasedSnowflake:
        return SteadySnowflake(self._settings.lease, self._settings.epoch, self._settings.layout)
