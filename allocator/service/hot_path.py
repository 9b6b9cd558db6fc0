"""The hot path: an ASGI application in front of the framework that answers repeated requests for ids.

The framework serves all others: the first request of a path, a request with a body or another parameter than `count`,
and a token that is not known yet. `repeated_requests` answers requests for one id that come again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from allocator.errors import AllocatorError
from allocator.schemes.shared.argument_checks import MAX_IDS_A_CALL
from allocator.service.auth import Book, Grant, mark
from allocator.service.error_responses import HttpRefusal, Refusals, new_name, request_name
from allocator.service.repeated_requests import WHOLE, Pairs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from allocator.service.id_sources import Source

Headers = dict[bytes, bytes]

COUNTS = {b"": 1} | {b"count=%d" % count: count for count in range(1, MAX_IDS_A_CALL + 1)}

FIXED = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
HEAD = b"".join([b"HTTP/1.1 200 OK\r\n", *(b"%b: %b\r\n" % pair for pair in FIXED)])
PATHS = re.compile("/v1/(sequences/[^/]+/ids|meteor|snowflake|objectids)")
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
        try:
            body = await self._draw(scope, headers)
        except AllocatorError as error:
            return await self._refuse(error, scope, headers, send)
        if body is None:
            return await self._framework(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": response_headers(headers, len(body))})
        await send({"type": "http.response.body", "body": body})
        return None

    async def _draw(self, scope: Scope, headers: Headers) -> bytes | None:
        """Draw ids as JSON; None if the framework must answer."""
        count = COUNTS.get(scope["query_string"])
        if count is None or scope["method"] != "POST":
            return None
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return None
        grant = self._book.quick(headers)
        if grant is None:
            self._refuse_at_once(scope, headers)
            return None
        source = grant.ready.get(scope["path"])
        return None if source is None else await self._draw_from(source, grant, count, scope)

    async def _draw_from(self, source: Source, grant: Grant, count: int, scope: Scope) -> bytes:
        if count == 1 and (body := single(source)) is not None:
            if WHOLE in scope:
                self._book.repeats.keep(scope, partial(again, source, grant))
            return body
        return source.body(await source.take(count))

    def _refuse_at_once(self, scope: Scope, headers: Headers) -> None:
        """Refuse a request for ids without a token: it may be one of thousands of a client that lacks its setting."""
        if PATHS.fullmatch(scope["path"]) and (error := self._book.refusal(headers)):
            if WHOLE in scope:
                self._book.repeats.keep(scope, self._refusals.again(error))
            raise error

    async def _refuse(self, error: AllocatorError, scope: Scope, headers: Headers, send: Send) -> None:
        if grant := self._book.quick(headers):
            mark(scope, grant)
        status, fields, body = self._refusals.report(error, scope)
        pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
        pairs.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


def single(source: Source) -> bytes | None:
    """One id from memory as JSON; None if none is there."""
    try:
        return source.single()
    except AllocatorError:  # comes again where ids are waited for, and is reported there
        return None


def again(source: Source, grant: Grant, lines: bytes, given: bytes) -> bytes | None:
    """A response with one id from memory, to a request that comes again."""
    if grant.expires and not grant.token.is_valid(datetime.now(UTC)):
        return None
    body = single(source)
    if body is None:
        return None
    name = given or new_name()
    return b"%b%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (HEAD, lines, len(body), name, body)


def response_headers(headers: Headers, length: int) -> Pairs:
    """The headers of a response, with the id of the request."""
    pairs = LENGTHS[length] if length < SHORT else [*FIXED, (b"content-length", b"%d" % length)]
    return [*pairs, (b"x-request-id", request_name(headers).encode())]


def repeated(pairs: Pairs) -> str | None:
    """Find a repeated header that must be unique: a proxy in front may have checked the other value."""
    names = [name for name, _ in pairs]
    return next((name.decode() for name in UNIQUE_HEADERS if names.count(name) > 1), None)
