"""Answers a request whose bytes are those of an earlier one, before anything is parsed.

Most clients send the same bytes for each id. Equal bytes ask for the same thing: the source of ids that the first
request found, or the reason of its refusal, holds for the next one, until the worker reads the tokens again two seconds
later. What may change sooner is checked each time: the expiry of a token, its rates, and whether an id is in memory.
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
"""The key of a request's bytes in its scope. The server sets it where an answer may be kept."""

MAX_REPEATS, MAX_BYTES = 1000, 1000
"""Requests in memory, and bytes of one: at most a megabyte per worker."""
PASSING = frozenset((b"x-request-id", b"upgrade"))
"""Headers of requests whose answers are not kept: the next one has another id, or the connection leaves HTTP."""


class Repeats:
    """The answers of one worker, by the bytes of the request."""

    def __init__(self) -> None:
        self._answers: dict[bytes, Answer] = {}
        self._defaults: Pairs = []
        self._lines = b""

    def answer(self, request: bytes, defaults: Pairs) -> bytes | None:
        """Answer a whole request; None if it must be parsed.

        defaults: the headers that the server adds to each response, a new list each second.
        """
        known = self._answers.get(request)
        if known is None:
            return None
        if defaults is not self._defaults:
            self._defaults, self._lines = defaults, b"".join(b"%b: %b\r\n" % pair for pair in defaults)
        return known(self._lines)

    def keep(self, scope: Mapping[str, Any], answer: Answer) -> None:
        """Give this answer when the request comes again. Call it before anything is awaited that reads the tokens."""
        if len(self._answers) >= MAX_REPEATS:
            self.clear()
        self._answers[scope[WHOLE]] = answer

    def clear(self) -> None:
        self._answers.clear()
