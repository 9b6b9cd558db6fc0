"""The asyncio API: the methods of the blocking API, awaited. Claims run on threads; the event loop does no I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack

from allocator.errors import InvalidSetting, Uncopyable
from allocator.fleet.tag_administration import Tags
from allocator.generators.sequence import Sequence
from allocator.generators.worker_numbers import AsyncWorkerLease
from allocator.runtime.iterators import take
from allocator.runtime.threads import to_thread, wait_for_async
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.shared.argument_checks import check_count
from allocator.schemes.snowflake import SnowflakeSettings
from allocator.schemes.tag import FailoverGap
from allocator.schemes.worker_number_lease import SECONDS
from allocator.sync import Allocator

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSequence(Uncopyable):
    """The ids of one tag, from `AsyncAllocator.sequence`."""

    __slots__ = ("_supply",)

    def __init__(self, supply: Sequence) -> None:
        self._supply = supply

    @property
    def tag(self) -> str:
        return self._supply.tag

    async def next_id(self) -> int:
        """As `Sequence.next_id`. A cancelled call burns no id."""
        for value in self._supply._values:  # as fast as `next`, without an exception at its end
            return value
        return await wait_for_async(self._supply._attempts())

    def __call__(self, *_: object) -> None:
        """As `Sequence.__call__`."""
        self._supply()

    async def next_ids(self, count: int) -> list[int]:
        """As `Sequence.next_ids`. A cancelled call burns the ids it had drawn."""
        supply = self._supply
        ids = list(take(supply._values, check_count(count)))
        return ids if len(ids) == count else await wait_for_async(supply._completed(ids, count))

    async def reserve(self, count: int) -> range:
        """As `Sequence.reserve`. A cancelled call burns the block."""
        return await wait_for_async(self._supply._claimed(count, {}, True))

    async def __aiter__(self) -> AsyncIterator[int]:
        """Endless ids: `async for id in sequence`. An error ends the iterator."""
        while True:
            for value in self._supply._values:
                yield value
            yield await wait_for_async(self._supply._attempts())

    def __repr__(self) -> str:
        return f"<AsyncSequence {self.tag}>"


def on_thread(method: Callable[Concatenate[Tags, P], T]) -> Callable[Concatenate[AsyncTags, P], Coroutine[Any, Any, T]]:
    """The method of `Tags`, awaited."""

    @wraps(method)
    async def call(self: AsyncTags, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, T] = getattr(self._tags, method.__name__)  # by name: a service has its own class of tags
        return await self._ids._on_thread(work, *args, **kwargs)

    return call


class AsyncTags:
    """`Tags` for asyncio, at `AsyncAllocator.tags`.

    Each method raises `DatabaseUnavailable` after the allocator's `timeout`; the change may still take effect later.
    """

    def __init__(self, ids: AsyncAllocator) -> None:
        self._ids, self._tags = ids, ids._allocator.tags

    create = on_thread(Tags.create)
    list = on_thread(Tags.list)
    get = on_thread(Tags.get)
    set = on_thread(Tags.set)
    repair = on_thread(Tags.repair)


class Settings(TypedDict, total=False):
    """The settings of `Allocator`."""

    token: str | None
    shards: Iterable[str | URL] | Mapping[str, str | URL | Engine] | None
    create_missing: bool
    step: int
    max_step: int
    limit: int
    failover_gap: FailoverGap | None
    runway: float
    timeout: float
    meteor: MeteorSettings | None
    snowflake: SnowflakeSettings | None


class AsyncAllocator(Uncopyable):
    """`Allocator` for asyncio: takes the same arguments, or an `Allocator` to share with blocking code.

        async with AsyncAllocator("sqlite:///ids.db") as ids:
            await ids.next_id("order")

    Not bound to an event loop. `close` leaves a shared `Allocator` open.
    """

    def __init__(
        self, database: str | URL | Engine | Iterable[str] | Allocator | None = None, **settings: Unpack[Settings]
    ) -> None:
        self._owned = not isinstance(database, Allocator)
        if isinstance(database, Allocator):
            if settings:
                raise InvalidSetting(
                    f"a shared Allocator has its settings already; pass {', '.join(settings)} to it where it is created"
                )
            self._allocator = database
        else:
            self._allocator = Allocator(database, **settings)
        self._serving = self._allocator._serving

    async def next_id(self, tag: str) -> int:
        """As `Allocator.next_id`. A cancelled call burns no id."""
        try:
            return next(self._serving[tag])
        except (StopIteration, KeyError, TypeError):
            return await wait_for_async(self._allocator.sequence(tag)._attempts())

    async def next_ids(self, tag: str, count: int) -> list[int]:
        """As `Allocator.next_ids`. A cancelled call burns the ids it had drawn."""
        return await self.sequence(tag).next_ids(count)

    async def reserve(self, tag: str, count: int) -> range:
        """As `Allocator.reserve`. A cancelled call burns the block."""
        return await self.sequence(tag).reserve(count)

    async def meteor(self) -> int:
        """As `Allocator.meteor`. A cancelled call burns no id."""
        for value in self._allocator._meteor._values:
            return value
        return await wait_for_async(self._allocator._meteor._attempts())

    async def snowflake(self) -> int:
        """As `Allocator.snowflake`. A cancelled call burns no id."""
        supply = self._allocator._snowflake
        for value in supply._values if monotonic() < supply.end else ():
            return value
        return await wait_for_async(supply._attempts())

    async def ticket(self, kind: str) -> int:
        """As `Allocator.ticket`. A cancelled call burns the ticket."""
        return await wait_for_async(self._allocator._drawn_ticket(kind))

    def worker(
        self, space: str, bits: int = 10, seconds: float = SECONDS, on_lost: Callable[[], object] | None = None
    ) -> AsyncWorkerLease:
        """As `Allocator.worker`, for `async with`."""
        return AsyncWorkerLease(self._allocator._workers, space, bits, seconds, on_lost)

    async def _on_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking `work` on a thread; discard its result after `timeout`."""
        return await wait_for_async(self._allocator._on_thread(work, *args, **kwargs))

    def sequence(self, tag: str) -> AsyncSequence:
        """The handle of one tag; not awaited, since it does no I/O."""
        return AsyncSequence(self._allocator.sequence(tag))

    @property
    def tags(self) -> AsyncTags:
        """Administration: create, list, get and set tags."""
        return AsyncTags(self)

    async def ping(self) -> None:
        """As `Allocator.ping`."""
        await self._on_thread(self._allocator.backend.ping)

    async def create_tables(self) -> None:
        """As `Allocator.create_tables`."""
        await to_thread(self._allocator.create_tables)

    def use(self, other: Allocator | AsyncAllocator) -> AbstractContextManager[None]:
        """As `Allocator.use`; not awaited."""
        return self._allocator.use(other._allocator if isinstance(other, AsyncAllocator) else other)

    async def close(self) -> None:
        """As `Allocator.close`, unless the allocator is shared."""
        if self._owned:
            await to_thread(self._allocator.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._allocator!r}>"
