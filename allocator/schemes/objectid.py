"""MongoDB's ObjectId: 12 bytes, made without coordination.

    4 bytes seconds since 1970 (unsigned, until 2106-02-07) | 5 bytes random, once per process | 3 bytes counter

The counter begins at a random number, is incremented for each id, and wraps after 0xFFFFFF. Only 40 random bits keep
two processes apart: a duplicate is unlikely, but possible. The layout before 2018 had a 3-byte machine and a 2-byte
process id in place of the random bytes.
Source: MongoDB's BSON ObjectId specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from allocator.errors import InvalidId
from allocator.schemes.formats.bit_layout import moment
from allocator.schemes.shared.argument_checks import check_whole, quoted
from allocator.schemes.shared.retry_pace import Wait

SIZE = 12
SECONDS, PROCESS, COUNTER = slice(0, 4), slice(4, 9), slice(9, 12)
MAX_SECONDS = 0xFFFF_FFFF
MAX_COUNTER = 0xFF_FFFF
TAILS = [bytes([value]) for value in range(256)]
HEX = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)


def parse(value: object) -> bytes:
    """The 12 bytes for bytes, hex digits, or another library's ObjectId. Raises `InvalidId`."""
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        if len(raw) == SIZE:
            return raw
        raise InvalidId(f"an ObjectId is {SIZE} bytes or 24 hex digits, got {len(raw)} bytes")
    if isinstance(value, str):
        if HEX.fullmatch(value):
            return bytes.fromhex(value)
        got = f"{len(value)} characters" if len(value) != 2 * SIZE else "other characters"
        raise InvalidId(f"an ObjectId is {SIZE} bytes or 24 hex digits, got {got}: {ascii(value)[:60]}")
    binary = getattr(value, "binary", None)  # an ObjectId of another library, such as bson
    if isinstance(binary, bytes) and len(binary) == SIZE:
        return binary
    raise InvalidId(f"an ObjectId is {SIZE} bytes or 24 hex digits, got {type(value).__name__}")


def build(seconds: int, process: bytes, counter: int) -> bytes:
    """The 12 bytes of these parts."""
    check_whole("seconds", seconds, 0, MAX_SECONDS, InvalidId)
    check_whole("counter", counter, 0, MAX_COUNTER, InvalidId)
    if not isinstance(process, bytes) or len(process) != 5:
        raise InvalidId(f"process must be 5 bytes, got {quoted(process, 60, ascii)}")
    return seconds.to_bytes(4, "big") + process + counter.to_bytes(3, "big")


def seconds_of(raw: bytes) -> int:
    return int.from_bytes(raw[SECONDS], "big")


def time_of(raw: bytes) -> datetime:
    return moment(seconds_of(raw))


def timestamp(at: datetime) -> int:
    """Whole seconds since 1970; a time without a zone is UTC."""
    if not isinstance(at, datetime):
        raise InvalidId(f"the time must be a datetime, got {type(at).__name__}")
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() // 1)


class ObjectIdBlocks:
    """The ids of one process, up to 256 of one second at a time. Not thread-safe: callers hold a lock."""

    __slots__ = ("_counter", "_left", "_process", "second")

    def __init__(self, process: bytes, counter: int) -> None:
        self._process = build(0, process, counter)[PROCESS]
        self._counter = counter
        self.second = -1
        self._left = 0

    def take(self, now: float, unused: int = 0) -> Iterator[bytes] | Wait:
        """The next ids of the second of `now`; when all its 2**24 ids are used, how long it lasts.

        If the clock went back, ids continue in the last second used.
        unused: how many ids of the last block were not drawn. A new second continues with their counters.
        """
        second = int(now)
        if second < self.second and not self._left:
            second = self.second + 1
        if second > self.second:
            self._counter = (self._counter - unused) & MAX_COUNTER
            self.second, self._left = second, MAX_COUNTER + 1
        if not self._left:
            return Wait(second + 1 - now)
        begin = self._counter & 0xFF
        tails = TAILS[begin : begin + self._left]
        prefix = build(self.second, self._process, self._counter)[:-1]
        self._counter = (self._counter + len(tails)) & MAX_COUNTER
        self._left -= len(tails)
        return map(prefix.__add__, tails)
