"""The hot routes, in front of the framework: a token that is known, a path that was asked for before, and ids.

Whatever is not as simple as that takes the long way through the framework: the first request of a path, a body, a
parameter that is not `count`, a token that is unknown or whose rate is used up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from allocator.errors import AllocatorError
from allocator.schemes.limits import MAX_IDS_A_CALL
from allocator.service.caller import mark
from allocator.service.draws import Draw
from allocator.service.grants import Book
from allocator.service.refusals import REQUEST_NAME, Refusals

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]

COUNTS = {b"": 1} | {b"count=%d" % count: count for count in range(1, MAX_IDS_A_CALL + 1)}

FIXED = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
SHORT = 200
LENGTHS = [[*FIXED, (b"content-length", b"%d" % length)] for length in range(SHORT)]


class Front:
    """An ASGI application. Flat, since each call of a function costs as much as an id."""

    def __init__(self, framework: Application, book: Book, refusals: Refusals) -> None:
        self._framework = framework
        self._book = book
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        draw = None
        if scope["type"] == "http" and scope["method"] == "POST":
            headers = dict(scope["headers"])
            count = COUNTS.get(scope["query_string"], 0)
            draw = self._ready(scope["path"], headers, count) if count else None
        if draw is None:
            return await self._framework(scope, receive, send)
        try:
            body = draw.at_once(count) or draw.body(await draw.take(count))
        except AllocatorError as error:
            return await self._refuse(error, scope, headers, send)
        await send({"type": "http.response.start", "status": 200, "headers": told(headers, len(body))})
        await send({"type": "http.response.body", "body": body})
        return None

    def _ready(self, path: str, headers: Headers, count: int) -> Draw | None:
        """What to draw from, if nothing speaks against it."""
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return None
        grant = self._book.quick(headers)
        if grant is None:
            return None
        draw = grant.ready.get(path)
        if draw and grant.limited:
            if grant.rates.admit():
                return None
            grant.rates.charge(count)
        return draw

    async def _refuse(self, error: AllocatorError, scope: Scope, headers: Headers, send: Send) -> None:
        if grant := self._book.quick(headers):
            mark(scope, grant)
        status, said, body = self._refusals.tell(error, scope)
        pairs = [(name.encode(), value.encode()) for name, value in said.items()]
        pairs.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


def told(headers: Headers, length: int) -> Pairs:
    """The headers of an answer so long, with the name of the request if it has one."""
    pairs = LENGTHS[length] if length < SHORT else [*FIXED, (b"content-length", b"%d" % length)]
    name = headers.get(b"x-request-id")
    return [*pairs, (b"x-request-id", name)] if name and REQUEST_NAME.fullmatch(name) else pairs
