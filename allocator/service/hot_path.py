"""The hot path: an ASGI application in front of the framework that answers repeated requests for ids.

The framework serves all others: the first request of a path, a request with a body or another parameter than `count`,
an unknown token, and a token whose rate limit is reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.errors import AllocatorError
from allocator.schemes.shared.argument_checks import MAX_IDS_A_CALL
from allocator.service.auth import Book, Grant, mark
from allocator.service.error_responses import HttpRefusal, Refusals, request_name
from allocator.telemetry.trace_context import incoming

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from allocator.service.sources import Source

Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]

COUNTS = {b"": 1} | {b"count=%d" % count: count for count in range(1, MAX_IDS_A_CALL + 1)}

FIXED = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
UNIQUE_HEADERS = (b"host", b"authorization")
SHORT = 200
LENGTHS = [[*FIXED, (b"content-length", b"%d" % length)] for length in range(SHORT)]
"""The headers of short responses, made once: to make them costs more than an id."""


class Front:
    """The ASGI application. It has few functions, since each call costs as much as an id."""

    def __init__(self, framework: ASGIApp, book: Book, refusals: Refusals) -> None:
        self._framework = framework
        self._book = book
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._framework(scope, receive, send)
        pairs = scope["headers"]
        headers = dict(pairs)
        if len(headers) < len(pairs) and (name := repeated(pairs)):
            return await self._refuse(HttpRefusal(400, f"the header {name} occurs twice"), scope, headers, send)
        ready = None
        if scope["method"] == "POST" and (count := COUNTS.get(scope["query_string"], 0)):
            ready = self._ready(scope["path"], headers)
        if ready is None:
            return await self._framework(scope, receive, send)
        source, grant = ready
        try:
            body = source.single(count) or source.body(await source.take(count))
        except AllocatorError as error:
            return await self._refuse(error, scope, headers, send)
        if grant.limited:
            grant.charge(count)
        await send({"type": "http.response.start", "status": 200, "headers": response_headers(headers, len(body))})
        await send({"type": "http.response.body", "body": body})
        return None

    def _ready(self, path: str, headers: Headers) -> tuple[Source, Grant] | None:
        """Find the source of ids and the token, if the hot path may serve this request."""
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return None
        grant = self._book.quick(headers)
        if grant is None:
            return None
        source = grant.ready.get(path)
        if source is None or (grant.limited and grant.wait()):
            return None
        return source, grant

    async def _refuse(self, error: AllocatorError, scope: Scope, headers: Headers, send: Send) -> None:
        if grant := self._book.quick(headers):
            mark(scope, grant)
        status, fields, body = self._refusals.report(error, scope)
        pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
        pairs.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


def with_trace_context(application: ASGIApp) -> ASGIApp:
    """Keep the headers of a request for the spans of its claims."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        token = incoming.set(scope.get("headers", ()))
        try:
            await application(scope, receive, send)
        finally:
            incoming.reset(token)

    return run


def response_headers(headers: Headers, length: int) -> Pairs:
    """The headers of a response, with the id of the request."""
    pairs = LENGTHS[length] if length < SHORT else [*FIXED, (b"content-length", b"%d" % length)]
    return [*pairs, (b"x-request-id", request_name(headers).encode())]


def repeated(pairs: Pairs) -> str | None:
    """Find a repeated header that must be unique: a proxy in front may have checked the other value."""
    names = [name for name, _ in pairs]
    return next((name.decode() for name in UNIQUE_HEADERS if names.count(name) > 1), None)
