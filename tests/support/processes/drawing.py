"""What a process of a `Crew` does that draws ids until it is killed, and keeps account in the file of its notes.

Whatever comes from the database is written before the library sees it, and every id before it counts as used. So
what the file does not hold was used by nobody, whenever the process is killed. A file is words of 8 bytes: kind of
record, number of the tag, count, and so many words.
"""

import asyncio
import logging
import os
import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from allocator import Allocator, AsyncAllocator
from allocator.errors import DatabaseUnavailable, MaxValueWentBack
from allocator.schemes.meteor import METEOR as LAYOUT

CLAIMED, DRAWN, FAILED, STOPPED, METEOR, SNOWFLAKE, NODE = range(1, 8)
"""Records: a range of one claim; ids; a call that failed; the tag went back; meteors without their random bits;
snowflakes; the number of a node."""

TAGS = tuple(f"tag-{number}" for number in range(24))
"""Many, so that claims come together."""
SOME_IDS = 4096
"""Bytes of an account; calls that failed are 24 each."""
FACES = ("plain", "asyncio", "others")


class Account(logging.Handler):
    """Also of the claims, each of which the library logs before it uses it."""

    def __init__(self, path: Path, tags: Sequence[str]) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = {tag: number for number, tag in enumerate(tags)}

    def write(self, kind: int, tag: str, words: Sequence[int] = ()) -> None:
        """At once and by one call of the system, since claims are made on other threads."""
        record = array("q", (kind, self._numbers[tag], len(words)))
        record.extend(words)
        os.write(self._file, record)

    def emit(self, record: logging.LogRecord) -> None:
        tag, first, last, _ = cast(tuple[str, int, int, int], record.args)
        self.write(CLAIMED, tag, (first, last + 1))


class Drawing:
    """`rate`: ids a second of this process; after an outage it catches up."""

    def __init__(self, ids: Allocator, account: Account, tags: Sequence[str], rate: float, seed: int) -> None:
        self._ids, self._account, self._tags, self._rate = ids, account, tags, rate
        self._rnd, self._nodes = random.Random(seed), set[int]()
        self._began, self._drawn = time.monotonic(), 0

    def used(self, tag: str, found: Sequence[int]) -> float:
        """Writes them down, and says for how many seconds to rest."""
        self._account.write(DRAWN, tag, found)
        self._drawn += len(found)
        return max(0.0, self._drawn / self._rate - (time.monotonic() - self._began))

    def plain(self, and_then: Callable[[], None] = lambda: None) -> None:
        while True:
            tag = self._rnd.choice(self._tags)
            try:
                time.sleep(self.used(tag, self._some(tag)))
                and_then()
            except DatabaseUnavailable:
                self._account.write(FAILED, tag)
            except MaxValueWentBack:
                return self._account.write(STOPPED, tag)

    def _some(self, tag: str) -> Sequence[int]:
        way = self._rnd.random()
        if way < 0.05:
            return self._ids.reserve(tag, self._rnd.randrange(1, 500))
        if way < 0.2:
            return [self._ids.next_id(tag)]
        return self._ids.next_ids(tag, self._rnd.randrange(1, 2000))

    def asyncio(self) -> None:
        asyncio.run(self._rounds(AsyncAllocator(self._ids)))

    def others(self) -> None:
        """Meteors and snowflakes beside ids."""
        self.plain(self._draw_others)

    def _draw_others(self) -> None:
        tag, meteors = self._tags[0], [self._ids.meteor() for _ in range(50)]
        self._account.write(METEOR, tag, [meteor >> 3 for meteor in meteors])
        if new := {LAYOUT.unpack(meteor)["node"] for meteor in meteors} - self._nodes:
            self._nodes |= new
            self._account.write(NODE, tag, [*new])
        self._account.write(SNOWFLAKE, tag, [self._ids.snowflake() for _ in range(50)])

    async def _rounds(self, ids: AsyncAllocator) -> None:
        """All tags at once, so that they are claimed together."""
        while not any(await asyncio.gather(*(self._one(ids, tag) for tag in self._tags))):
            pass

    async def _one(self, ids: AsyncAllocator, tag: str) -> bool:
        try:
            await asyncio.sleep(self.used(tag, await ids.next_ids(tag, self._rnd.randrange(1, 2000))))
        except DatabaseUnavailable:
            self._account.write(FAILED, tag)
        except MaxValueWentBack:
            self._account.write(STOPPED, tag)
            return True
        return False


def draw(notes: Path, number: int, url: str, settings: Mapping[str, Any], rate: float, seed: int) -> None:
    """The work of a `Crew`. `settings` are of the allocator of each worker, `rate` its ids a second."""
    account, claims = Account(notes, TAGS), logging.getLogger("allocator.claims")
    claims.addHandler(account)
    claims.setLevel(logging.DEBUG)
    with Allocator(url, **settings) as ids:
        getattr(Drawing(ids, account, TAGS, rate, seed + number), FACES[number % len(FACES)])()
