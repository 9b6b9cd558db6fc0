"""Answers a request whose bytes are those of the last one of its connection, before anything is parsed.

Most clients send the same bytes for each id. Equal bytes ask for the same thing: the source of ids that the first
request found, or the reason of its refusal, holds for the next one, until the worker reads the tokens again two seconds
later. What may change sooner is checked each time: the expiry of a token, its rates, and whether an id is in memory.
No answer is kept for another connection: a client that splits its requests oddly can confuse itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Pairs = list[tuple[bytes, bytes]]
Answer = Callable[[bytes], bytes | None]
"""Makes a response, with header lines of the server; None if the request must be parsed."""

REPEATS = "allocator.repeats"
"""The key of a worker's `Repeats` in the state of the application's lifespan, where the server finds it."""
WHOLE = "allocator.whole"
"""The key of a request's `Repeat` in its scope. The server sets it where an answer may be kept."""

MAX_BYTES = 1000
"""A longer request is not kept: each connection keeps one in memory."""
PASSING = frozenset((b"x-request-id", b"upgrade"))
"""Headers of requests whose answers are not kept: the next one has another id, or the connection leaves HTTP."""


class Repeat:
    """The last request of a connection that may come again, and its answer."""

    __slots__ = ("answer", "reading", "request")

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answer: Answer | None = None
        self.reading: object = None


class Repeats:
    """What the connections of one worker share: whether the tokens were read since an answer was kept."""

    def __init__(self) -> None:
        self._reading = object()
        self._defaults: Pairs = []
        self._lines = b""

    def answer(self, repeat: Repeat | None, request: bytes, defaults: Pairs) -> bytes | None:
        """Answer a whole request; None if it must be parsed.

        defaults: the headers that the server adds to each response, a new list each second.
        """
        if repeat is None or repeat.answer is None or repeat.request != request or repeat.reading is not self._reading:
            return None
        if defaults is not self._defaults:
            self._defaults, self._lines = defaults, b"".join(b"%b: %b\r\n" % pair for pair in defaults)
        return repeat.answer(self._lines)

    def keep(self, scope: Mapping[str, Any], answer: Answer) -> None:
        """Give this answer when the request comes again. Call it before anything is awaited that reads the tokens."""
        repeat: Repeat = scope[WHOLE]
        repeat.answer, repeat.reading = answer, self._reading

    def clear(self) -> None:
        self._reading = object()
