"""What the hot routes give: ids of one kind, as the text of JSON.

`quick` brings what memory holds, without waiting; the rest is awaited.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from allocator.aio import AsyncAllocator, AsyncSequence
from allocator.objectid import ObjectId
from allocator.schemes.limits import check_count

METEOR, SNOWFLAKE, OBJECTID = "meteor", "snowflake", "objectid"


class Draw:
    """`given` counts the ids, for the figures."""

    __slots__ = ("_before", "given", "scheme", "tag")

    def __init__(self, scheme: str, tag: str = "") -> None:
        self.scheme, self.tag = scheme, tag
        self.given = 0
        self._before = f'{{"tag":"{tag}","ids":["'.encode() if tag else b'{"ids":["'

    async def take(self, count: int) -> list[int] | list[str]:
        """So many ids, 1 to 10000."""
        check_count(count)
        ids = self.quick(count)
        if len(ids) < count:
            ids += await self.more(count - len(ids))  # type: ignore[operator]  # both are of one kind
        self.given += count
        return ids

    def quick(self, count: int) -> list[int] | list[str]:
        return []

    @abstractmethod
    async def more(self, count: int) -> list[int] | list[str]: ...

    def body(self, ids: list[int] | list[str]) -> bytes:
        """The ids as JSON; what stands in them needs no escape."""
        if len(ids) == 1:
            return b'%b%b"]}' % (self._before, str(ids[0]).encode())
        return b'%b%b"]}' % (self._before, '","'.join(map(str, ids)).encode())


class SequenceDraw(Draw):
    """The ids of a tag."""

    __slots__ = ("_sequence", "supply")

    def __init__(self, sequence: AsyncSequence) -> None:
        super().__init__("segment", sequence.tag)
        self._sequence = sequence
        self.supply = sequence._supply

    def quick(self, count: int) -> list[int]:
        return list(islice(self.supply._values, count))

    async def more(self, count: int) -> list[int]:
        return await self._sequence.next_ids(count)


class CallDraw(Draw):
    """The ids of a scheme without tags, one call each."""

    __slots__ = ("_call",)

    def __init__(self, scheme: str, call: Callable[[], Awaitable[int]]) -> None:
        super().__init__(scheme)
        self._call = call

    async def more(self, count: int) -> list[int]:
        return [await self._call() for _ in range(count)]


class ObjectIdDraw(Draw):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(OBJECTID)

    def quick(self, count: int) -> list[str]:
        return [str(ObjectId()) for _ in range(count)]

    async def more(self, count: int) -> list[str]:
        return self.quick(count)


class Draws:
    """All of one worker; the same one for the same tag."""

    def __init__(self, ids: AsyncAllocator) -> None:
        self._ids = ids
        self.meteor = CallDraw(METEOR, ids.meteor)
        self.snowflake = CallDraw(SNOWFLAKE, ids.snowflake)
        self.objectid = ObjectIdDraw()
        self._sequences: dict[str, SequenceDraw] = {}

    def known(self, tag: str) -> SequenceDraw | None:
        return self._sequences.get(tag)

    def sequence(self, tag: str) -> SequenceDraw:
        """Of a tag that exists: what is made here stays."""
        return self._sequences.setdefault(tag, SequenceDraw(self._ids.sequence(tag)))

    def sequences(self) -> Iterable[SequenceDraw]:
        return list(self._sequences.values())

    def all(self) -> Iterable[Draw]:
        return [self.meteor, self.snowflake, self.objectid, *self._sequences.values()]
