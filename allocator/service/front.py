"""The hot routes, in front of the framework: a token that is known, a path that was asked for before, and ids.

Whatever is not as simple as that takes the long way through the framework: the first request of a path, a body, a
parameter that is not `count`, a token that is unknown or whose rate is used up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from allocator.errors import AllocatorError
from allocator.schemes.limits import MAX_IDS_A_CALL
from allocator.service.draws import Draw
from allocator.service.grants import Book
from allocator.service.refusals import REQUEST_NAME, Refusals

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]

COUNTS = {b"": 1} | {b"count=%d" % count: count for count in range(1, MAX_IDS_A_CALL + 1)}

FIXED = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
LENGTHS = [[*FIXED, (b"content-length", b"%d" % length)] for length in range(200)]


class Front:
    """An ASGI application."""

    def __init__(self, framework: Application, book: Book, refusals: Refusals) -> None:
        self._framework = framework
        self._book = book
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            headers = dict(scope["headers"])
            count = COUNTS.get(scope["query_string"], 0)
            if count and (draw := self._ready(scope["path"], headers, count)):
                return await self._give(draw, count, scope, headers, send)
        return await self._framework(scope, receive, send)

    def _ready(self, path: str, headers: Headers, count: int) -> Draw | None:
        """What to draw from, if nothing speaks against it."""
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return None
        grant = self._book.quick(headers)
        draw = grant.ready.get(path) if grant else None
        return None if draw and grant and grant.limited and grant.rates.use(count) else draw

    async def _give(self, draw: Draw, count: int, scope: Scope, headers: Headers, send: Send) -> None:
        try:
            ids = draw.quick(count)
            if len(ids) < count:
                ids += await draw.more(count - len(ids))  # type: ignore[operator]  # both are of one kind
        except AllocatorError as error:
            status, told, body = self._refusals.tell(error, scope["method"], scope["path"], headers)
            pairs = [(name.encode(), value.encode()) for name, value in told.items()]
            return await respond(send, status, [*pairs, (b"content-length", b"%d" % len(body))], body)
        draw.given += count
        body = draw.body(ids)
        length = len(body)
        sent = LENGTHS[length] if length < 200 else [*FIXED, (b"content-length", b"%d" % length)]
        given = headers.get(b"x-request-id")
        if given and REQUEST_NAME.fullmatch(given):
            sent = [*sent, (b"x-request-id", given)]
        return await respond(send, 200, sent, body)


async def respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
