"""What the hot routes give: ids of one kind, as the text of JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable

from allocator.errors import InvalidCount
from allocator.generators.objectid import ObjectId
from allocator.host import Buffer, Host
from allocator.schemes.checks import check_count

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
        await self.foresee(count)
        return await self.drawn(count)

    async def drawn(self, count: int) -> list[int] | list[str]:
        """As `take`, for a part of what was foreseen."""
        ids = self.quick(count)
        if len(ids) < count:
            ids += await self.more(count - len(ids))  # type: ignore[operator]  # both are of one kind
        self.given += count
        return ids

    def at_once(self, count: int) -> bytes | None:
        """A single id as JSON, if that is all that is wanted and nothing has to be waited for."""
        return None

    async def foresee(self, count: int) -> None:
        """Raise what so many ids would end with, before any of them is drawn and lost by that."""

    def quick(self, count: int) -> list[int] | list[str]:
        """What memory holds, so many at most."""
        return []

    @abstractmethod
    async def more(self, count: int) -> list[int] | list[str]: ...

    def body(self, ids: list[int] | list[str]) -> bytes:
        """The ids as JSON; what stands in them needs no escape."""
        return b'%b%b"]}' % (self._before, '","'.join(map(str, ids)).encode())


class BufferDraw(Draw):
    """Ids that this process has in memory."""

    __slots__ = ("_next",)

    def __init__(self, scheme: str, buffer: Buffer, tag: str = "") -> None:
        super().__init__(scheme, tag)
        self._next = buffer.next

    def at_once(self, count: int) -> bytes | None:
        if count != 1 or (number := self._next()) is None:
            return None
        self.given += 1
        return b'%b%d"]}' % (self._before, number)


class SequenceDraw(BufferDraw):
    """The ids of a tag. `rate` is how many were drawn a second lately, `counted` what the figures know of."""

    __slots__ = ("_ids", "_sequence", "buffer", "counted", "rate")

    def __init__(self, ids: Host, tag: str) -> None:
        self.buffer = ids.buffer(tag)
        super().__init__("segment", self.buffer, tag)
        self._ids, self._sequence = ids, ids.sequence(tag)
        self.counted, self.rate = 0, 0.0

    def quick(self, count: int) -> list[int]:
        return self.buffer.take(count)

    async def foresee(self, count: int) -> None:
        """A batch that is larger than memory asks the database first how it is, and how many ids there are left."""
        if count == 1 or (held := self.buffer.count()) >= count:
            return
        left = held + (await self._ids.tags.get(self.tag)).remaining
        if 0 < left < count:
            raise InvalidCount(f"count must be at most {left}, all that remain of tag {self.tag!r} here, got {count}")

    async def more(self, count: int) -> list[int]:
        return await self._sequence.next_ids(count)


class SchemeDraw(BufferDraw):
    """The ids of a scheme without tags, one call each."""

    __slots__ = ("_call",)

    def __init__(self, scheme: str, buffer: Buffer, call: Callable[[], Awaitable[int]]) -> None:
        super().__init__(scheme, buffer)
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

    def __init__(self, ids: Host) -> None:
        self._ids = ids
        self.meteor = SchemeDraw(METEOR, ids.meteor_buffer, ids.meteor)
        self.snowflake = SchemeDraw(SNOWFLAKE, ids.snowflake_buffer, ids.snowflake)
        self.objectid = ObjectIdDraw()
        self._sequences: dict[str, SequenceDraw] = {}

    def known(self, tag: str) -> SequenceDraw | None:
        return self._sequences.get(tag)

    def sequence(self, tag: str) -> SequenceDraw:
        """Of a tag that exists: what is made here stays."""
        return self._sequences.setdefault(tag, SequenceDraw(self._ids, tag))

    def sequences(self) -> Iterable[SequenceDraw]:
        return list(self._sequences.values())

    def all(self) -> Iterable[Draw]:
        return [self.meteor, self.snowflake, self.objectid, *self._sequences.values()]
