"""The value type `ObjectId`, and the generator of new ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import total_ordering
from itertools import islice
from os import urandom
from time import sleep, time

from allocator.errors import InvalidId
from allocator.runtime.forks import catch_up, exhaust, is_held_here, register
from allocator.runtime.iterators import first_and_rest
from allocator.schemes.objectid import ObjectIdBlocks, build, parse, seconds_of, time_of, timestamp
from allocator.schemes.shared.retry_pace import Wait, found_by


class Generator:
    """The generator of this process. `values` may be used until `end`, in seconds since 1970."""

    __slots__ = ("__weakref__", "_blocks", "_clock", "_lock", "_sleep", "end", "values")

    def __init__(
        self,
        process: bytes,
        counter: int,
        clock: Callable[[], float] = time,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self.values: Iterator[bytes] = iter(())
        self._forget()
        self._begin(process, counter)

    def _begin(self, process: bytes, counter: int) -> None:
        self._lock = threading.RLock()
        self._blocks = ObjectIdBlocks(process, counter)

    def _supplies(self) -> list[Generator]:
        return [self]

    def _forget(self) -> None:
        """Serve nothing in a forked child, where a call that the fork interrupted still holds this object."""
        self.end = -1.0
        exhaust(self.values)
        self.values = iter(())

    def after_fork(self) -> None:
        self._begin(*fresh())

    def refill(self) -> bytes:
        if catch_up():
            return generator.refill()
        if is_held_here(self._lock):
            return Generator(*fresh()).refill()  # a signal handler or destructor interrupted this method
        return found_by(self._attempt, self._clock, self._sleep)

    def _attempt(self) -> bytes | Wait:
        with self._lock:
            return self._decide(self._clock())

    def _decide(self, now: float) -> bytes | Wait:
        if now < self.end and (value := next(self.values, None)) is not None:
            return value  # another thread refilled first
        # Drained, so that no other thread draws what is counted here as unused.
        blocks = self._blocks
        values = blocks.take(now, unused=len(list(self.values)))
        if isinstance(values, Wait):
            return values
        first, self.values = first_and_rest(values)
        self.end = float(blocks.second + 1)
        if self._blocks is not blocks:  # a signal handler has forked meanwhile: here they are the parent's
            self._forget()
            self.after_fork()
            return self._decide(now)
        return first


def fresh() -> tuple[bytes, int]:
    """Random bytes and a counter for a process."""
    return urandom(5), int.from_bytes(urandom(3))


generator = Generator(*fresh())
register(generator)


def several(count: int) -> list[bytes]:
    """The bytes of new ones, in a quarter of the time that as many objects take."""
    found: list[bytes] = []
    while len(found) < count:
        source = generator
        if time() < source.end:
            found += islice(source.values, count - len(found))
        if len(found) < count:
            found.append(source.refill())
    return found


@total_ordering
class ObjectId:
    """12 bytes: seconds, five random bytes of the process, a counter. Ordered by bytes, hashable, immutable.

        ObjectId()                                new
        ObjectId("4df2dcec2cdcd20936a8b817")      from 24 hex digits, 12 bytes, or another library's ObjectId

    `str()` returns the hex digits and `bytes()` the bytes, as with bson. Raises `InvalidId` for anything else.
    PyMongo accepts it in place of its own: in documents and queries, in `bson.ObjectId(...)`, and in comparisons.
    Unlike the other schemes it needs no database, and only 40 random bits keep processes apart.
    """

    __slots__ = ("_binary",)

    _type_marker = 7
    """bson encodes values with this marker as ObjectIds."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """bson's ObjectId class once bson is imported: its constructor and its comparisons check `isinstance`."""
        return getattr(sys.modules.get("bson.objectid"), "ObjectId", type(self))

    def __init__(self, value: object = None) -> None:
        if value is not None:
            self._binary = parse(value)
            return
        source = generator
        try:
            self._binary = next(source.values) if time() < source.end else source.refill()
        except StopIteration:
            self._binary = source.refill()

    @classmethod
    def from_parts(cls, seconds: int, process: bytes, counter: int) -> ObjectId:
        """Build one from seconds since 1970, five bytes, and a counter up to 0xFFFFFF."""
        return cls(build(seconds, process, counter))

    @classmethod
    def from_datetime(cls, at: datetime) -> ObjectId:
        """The smallest ObjectId of a second, for range queries; a time without a zone is UTC. Not unique."""
        return cls(build(timestamp(at), bytes(5), 0))

    @classmethod
    def is_valid(cls, value: object) -> bool:
        """Whether `ObjectId(value)` would succeed."""
        try:
            parse(value)
        except InvalidId:
            return False
        return True

    @property
    def binary(self) -> bytes:
        """The 12 bytes."""
        return self._binary

    @property
    def generation_time(self) -> datetime:
        """The time of its creation, in UTC, to the second."""
        return time_of(self._binary)

    @property
    def seconds(self) -> int:
        return seconds_of(self._binary)

    def __reduce__(self) -> tuple[type[ObjectId], tuple[bytes]]:
        return type(self), (self._binary,)

    def __bytes__(self) -> bytes:
        return self._binary

    def __str__(self) -> str:
        return self._binary.hex()

    def __repr__(self) -> str:
        return f"ObjectId('{self._binary.hex()}')"

    def __eq__(self, other: object) -> bool:
        return self._binary == other._binary if isinstance(other, ObjectId) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._binary < other._binary if isinstance(other, ObjectId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._binary)
