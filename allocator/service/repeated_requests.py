"""Answers a request whose bytes are those of the last one of its connection, before anything is parsed.

Most clients send the same bytes for each id, except for the id of the request and the headers of its trace. Equal bytes
ask for the same thing: the source of ids that the first request found, or the reason of its refusal, holds for the next
one, until the worker reads the tokens again two seconds later. What may change sooner is checked each time: the expiry
of a token, and whether an id is in memory. No answer is kept for another connection: a client that splits
its requests oddly can confuse itself alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Pairs = list[tuple[bytes, bytes]]
Answer = Callable[[bytes, bytes], bytes | None]
"""Makes a response, with header lines of the server and the id of the request, empty if the client gave none; None if
the request must be parsed."""

REPEATS = "allocator.repeats"
"""The key of a worker's `Repeats` in the state of the application's lifespan, where the server finds it."""
WHOLE = "allocator.whole"
"""The key of a request's `Repeat` in its scope. The server sets it where an answer may be kept."""

MAX_BYTES = 1000
"""A longer request is not kept: each connection keeps one in memory."""
REQUEST_NAME = re.compile(rb"[A-Za-z0-9_.:/+=-]{1,128}")
"""An id of a request, as its client may choose it."""
VALUES = re.compile(
    rb"\r\n(?:((?i:x-request-id): ?)(%b)|((?i:trace(?:parent|state)|x-amzn-trace-id): ?)[!-~]{1,256})(?=\r\n)"
    % REQUEST_NAME.pattern
)
"""What may differ in a request that comes again. Neither the parser nor an answer depends on these values, and visible
ASCII cannot end their line."""


class Repeat:
    """The last request of a connection that may come again, and its answer."""

    __slots__ = ("answer", "name", "reading", "request", "rest")

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.rest, self.name = apart(request)
        self.answer: Answer | None = None
        self.reading: object = None

    def agrees(self, headers: Pairs) -> bool:
        """Tell whether the parser saw a header in each line, and `name` as the only X-Request-Id."""
        names = [name for name, _ in headers].count(b"x-request-id")
        return names == bool(self.name) and self.request.count(b"\n") == len(headers) + 2


def apart(request: bytes) -> tuple[list[Any], bytes]:
    """Part a request into the bytes around its `VALUES`, and its id."""
    parts = VALUES.split(request)
    names = parts[2::4]
    del parts[2::4]
    return parts, b"".join(filter(None, names))


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
        if repeat is None or repeat.answer is None or repeat.reading is not self._reading:
            return None
        name = repeat.name
        if request != repeat.request:
            if not request.startswith(repeat.rest[0]):  # a request for something else costs no more than that
                return None
            rest, name = apart(request)
            if rest != repeat.rest:
                return None
        if defaults is not self._defaults:
            self._defaults, self._lines = defaults, b"".join(b"%b: %b\r\n" % pair for pair in defaults)
        return repeat.answer(self._lines, name)

    def keep(self, scope: Mapping[str, Any], answer: Answer) -> None:
        """Give this answer when the request comes again. Call it before anything is awaited that reads the tokens."""
        repeat: Repeat = scope[WHOLE]
        repeat.answer, repeat.reading = answer, self._reading

    def clear(self) -> None:
        self._reading = object()
