"""`MemoryAllocator` and `AsyncMemoryAllocator`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Unpack, cast

from allocator.aio import AsyncAllocator, Settings
from allocator.backend import check_statement
from allocator.errors import AllocatorError, InvalidDatabase, InvalidSetting
from allocator.schemes.checks import quoted
from allocator.sync import Allocator
from allocator.testing.memory_backend import MemoryBackend
from allocator.testing.supplies import (
    AsyncMemoryWorkerLease,
    MemoryMeteors,
    MemorySequence,
    MemorySnowflakes,
    MemoryWorkerLease,
    SynchronousBackground,
)

DATABASE_SETTINGS = ("token", "shards", "shard_hosts", "fleet")


class MemoryAllocator(Allocator):
    """An `Allocator` without a database, for tests: the same calls return the same ids in every run.

        with MemoryAllocator() as ids:
            ids.next_id("order")        1

    It takes the settings of `Allocator` except `token`, `shards`, `shard_hosts` and `fleet`; `runway` has no effect,
    since the speed of a test varies. The first id of a tag and the first ticket are 1. Meteors and snowflakes begin on
    2026-01-01 as node 1 and worker 0. It never waits and starts no thread.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    __slots__ = ("_memory",)

    _background_type = SynchronousBackground
    _sequence_type = MemorySequence
    _worker_type = MemoryWorkerLease

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator takes no database; pass it to Allocator")
        if names := [name for name in DATABASE_SETTINGS if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator takes no {' or '.join(names)}, since it has no database")
        self._memory = MemoryBackend(check_statement(settings.get("tickets")))
        rest: Any = {name: value for name, value in settings.items() if name not in (*DATABASE_SETTINGS, "tickets")}
        super().__init__(cast(Any, self._memory), **rest)
        self._terms = replace(self._terms, runway=0.0)
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

    _worker_type = AsyncMemoryWorkerLease

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
