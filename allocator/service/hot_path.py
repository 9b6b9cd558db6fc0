"""The hot path: an ASGI application in front of the framework that answers repeated requests for ids.

The framework serves all others: the first request of a path, a request with a body or another parameter than `count`,
and a token that is not known yet.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import TYPE_CHECKING

from allocator.errors import AllocatorError
from allocator.service.auth import TokenCache
from allocator.service.error_responses import ErrorReporter, HttpRefusal, request_name
from allocator.service.log_config import NUMBER
from allocator.service.metrics import OTHERS, Metrics
from allocator.service.served_ids import MAX_COUNT, METEOR, OBJECTID, SNOWFLAKE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from allocator.service.served_ids import Source

Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]

COUNTS = {b"": 1} | {b"count=%d" % count: count for count in range(1, MAX_COUNT + 1)}

QUICK = 100
"""Ids of an answer that takes not much longer than a single one."""

FIXED = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
TAG_IDS = "/v1/tags/{tag}/ids"
ROUTES = {"segment": TAG_IDS, METEOR: "/v1/meteor", SNOWFLAKE: "/v1/snowflake", OBJECTID: "/v1/objectids"}
"""By the schemes of their sources."""
PATHS = re.compile("/v1/(tags/[^/]+/ids|meteor|snowflake|objectids)")
GONE = 499
"""The status for the metrics where no answer was begun."""
UNIQUE_HEADERS = (b"host", b"authorization")


class HotPath:
    """The ASGI application. It has few functions, since each call costs as much as an id."""

    def __init__(
        self, framework: ASGIApp, token_cache: TokenCache, error_reporter: ErrorReporter, metrics: Metrics
    ) -> None:
        self._framework = framework
        self._metrics = metrics
        self._observe = {
            scheme: metrics.requests.labels(route, "POST", "2xx").observe for scheme, route in ROUTES.items()
        }
        self._token_cache = token_cache
        self._error_reporter = error_reporter
        self.has_started = asyncio.Event()
        """Requests are answered from now on."""
        self.is_ending = False
        """The process will end: each answer ends its connection, so that the next request goes to another process."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._framework(scope, receive, send)
        began, pairs = perf_counter(), scope["headers"]
        headers = dict(pairs)
        if self.is_ending or b"transfer-encoding" in headers:
            send = closing(send)
        try:
            check_headers(scope["http_version"], pairs, headers)
            drawn = await self._draw(scope, headers)
        except AllocatorError as error:
            if principal := self._token_cache.find_in_memory(headers):
                scope[NUMBER] = principal.token.number
            refusal = self._error_reporter.response(error, scope)
            await refusal(scope, receive, send)
            route, seconds = hot_route(scope["path"]), perf_counter() - began
            return self._metrics.answered(route, scope["method"], refusal.status_code, seconds)
        if drawn is None:
            if principal := self._token_cache.find_in_memory(headers):
                await principal.take_turn()
            return await self._by_framework(scope, receive, send, began)
        body, scheme = drawn
        length, name = b"%d" % len(body), request_name(headers).encode()
        answered = [*FIXED, (b"content-length", length), (b"x-request-id", name)]
        await send({"type": "http.response.start", "status": 200, "headers": answered})
        await send({"type": "http.response.body", "body": body})
        return self._observe[scheme](perf_counter() - began)

    async def _by_framework(self, scope: Scope, receive: Receive, send: Send, began: float) -> None:
        """Let the framework answer, and note the route that it finds."""
        status = GONE

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._framework(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", OTHERS)
            self._metrics.answered(route, scope["method"], status, perf_counter() - began)

    async def _draw(self, scope: Scope, headers: Headers) -> tuple[bytes, str] | None:
        """Draw ids as JSON, and tell their scheme; None if the framework must answer."""
        count = COUNTS.get(scope["query_string"])
        if count is None or scope["method"] != "POST":
            return None
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return None
        principal = self._token_cache.find_in_memory(headers)
        if principal is None:
            # It may be one of thousands of a client that lacks its setting.
            if PATHS.fullmatch(scope["path"]) and (error := self._token_cache.refusal(headers)):
                raise error
            return None
        source = principal.hot_sources.get(scope["path"])
        if source is None:
            return None
        if count > QUICK:
            await principal.take_turn()
        return (single(source) if count == 1 else None) or await source.answer(count), source.scheme


def hot_route(path: str) -> str:
    if not PATHS.fullmatch(path):
        return OTHERS
    return TAG_IDS if path.startswith("/v1/tags/") else path


def closing(send: Send) -> Send:
    """Send answers that end their connection.

    After a chunked body, since servers differ about where an odd one ends, and so about which request comes next: that
    one's answer could go to another, where a proxy passes on the requests of many.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return sent


def single(source: Source) -> bytes | None:
    """One id from memory as JSON; None if none is there."""
    try:
        return source.single()
    except AllocatorError:  # comes again where ids are waited for, and is reported there
        return None


def check_headers(version: str, pairs: Pairs, headers: Headers) -> None:
    """Refuse a repeated header that must be unique: a proxy in front may have checked the other value."""
    if len(headers) < len(pairs):
        names = [name for name, _ in pairs]
        for name in UNIQUE_HEADERS:
            if names.count(name) > 1:
                raise HttpRefusal(400, f"the header {name.decode()} occurs twice")
    if version == "1.1" and not headers.get(b"host"):  # granian has an empty one where there is none
        raise HttpRefusal(400, "the header host is missing")
