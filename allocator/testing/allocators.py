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
from allocator.testing.supplies import AtOnce, MemoryMeteors, MemorySequence, MemorySnowflakes

DATABASE_SETTINGS = ("token", "shards", "shard_hosts", "fleet")


class MemoryAllocator(Allocator):
    """An `Allocator` without a database, for tests: the same calls give the same ids in every run.

        with MemoryAllocator() as ids:
            ids.next_id("order")        1

    It takes the settings of `Allocator`, but for those that are of a database (`token`, `shards`, `shard_hosts`,
    `fleet`); `runway` has no effect, since the rate of a test is an accident. The first id of a tag and the first
    ticket are 1; meteors and snowflakes begin on 2026-01-01 as node 1 and worker 0. Nothing waits, and no thread is
    started.

    Raises `InvalidDatabase` for a URL or engine, and `InvalidSetting`.
    """

    __slots__ = ("_memory",)

    _background_type = AtOnce
    _sequence_type = MemorySequence

    def __init__(self, database: None = None, **settings: Unpack[Settings]) -> None:
        if database is not None:
            raise InvalidDatabase("a MemoryAllocator has no database, and got one; give that to Allocator")
        if names := [name for name in DATABASE_SETTINGS if settings.get(name) is not None]:
            raise InvalidSetting(f"a MemoryAllocator has no database, and {' and '.join(names)} would be of one")
        self._memory = MemoryBackend(check_statement(settings.get("tickets")))
        rest: Any = {name: value for name, value in settings.items() if name not in (*DATABASE_SETTINGS, "tickets")}
        super().__init__(cast(Any, self._memory), **rest)
        self._terms = replace(self._terms, runway=0.0)
        shared = (self._memory, self._background, self._terms)
        self._meteor = MemoryMeteors(*shared, self._meteor._settings, owner=self)
        self._snowflake = MemorySnowflakes(*shared, self._snowflake._settings, owner=self)

    def fail(self, error: AllocatorError) -> AbstractContextManager[object]:
        """From now on every call for ids or tags raises `error`, until `recover` or the end of a `with` block.

        No id is lost: what is in memory is served afterwards.
        """
        if not isinstance(error, AllocatorError):
            raise InvalidSetting(f"fail needs an AllocatorError, as DatabaseUnavailable('...'), got {quoted(error)}")
        self._memory.failure = error
        return call_at_end(self.recover)

    def go_away(self) -> AbstractContextManager[object]:
        """From now on the database is away, until `recover` or the end of a `with` block.

        Ids go on from memory while they last, as in truth; then `DatabaseUnavailable` is raised, and at once.
        """
        self._memory.is_away = True
        return call_at_end(self.recover)

    def recover(self) -> None:
        """The end of `fail` and `go_away`."""
        self._memory.failure, self._memory.is_away = None, False

    def __repr__(self) -> str:
        return "<MemoryAllocator>"


def call_at_end(call: Callable[[], None]) -> AbstractContextManager[object]:
    """For what has begun already: `with` ends it, and may be left out."""
    stack = ExitStack()
    stack.callback(call)
    return stack


class AsyncMemoryAllocator(AsyncAllocator):
    """`MemoryAllocator` for asyncio: the same settings, or a `MemoryAllocator` to share.

    `memory` is that one, for `fail`, `go_away` and `recover`. Not bound to an event loop, and never waits for one.
    """

    def __init__(self, memory: MemoryAllocator | None = None, **settings: Unpack[Settings]) -> None:
        if memory is not None and not isinstance(memory, MemoryAllocator):
            raise InvalidDatabase("an AsyncMemoryAllocator shares a MemoryAllocator, and got something else")
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
