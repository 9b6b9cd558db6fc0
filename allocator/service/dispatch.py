"""Calls the handler of a request. Serves every route that is not hot, and the first request of a hot one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette import routing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import AllocatorError
from allocator.service.auth import Book, Grant, mark
from allocator.service.error_responses import NO_STORE, HttpRefusal, Refusals, request_name
from allocator.service.parameters import MAX_BODY, Field, read_body, read_query

BODY_SECONDS = 10.0
"""The server bounds the time of a head only."""

Endpoint = Callable[[Request], Awaitable[Response]]

MESSAGES = {
    404: "there is no such path; see /openapi.json for all paths",
    500: "internal error; the operator of the service finds a traceback in the log",
}


@dataclass(frozen=True, slots=True)
class Call:
    """An authorized request, with its checked query and body."""

    request: Request
    grant: Grant
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    def name(self, parameter: str) -> str:
        return str(self.request.path_params[parameter])


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. The docstring of `handler` describes it in OpenAPI.

    group: its heading in OpenAPI.
    verb: the right that the token needs, on the tag, ticket type or space in the path. Without it any token will do.
    scheme: the scheme that the token must cover instead.
    created: the response may be 201.
    """

    group: str
    method: str
    path: str
    handler: Callable[[Call], Awaitable[Response]]
    answer: Mapping[str, Any]
    verb: str | None = None
    scheme: str | None = None
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    created: bool = False


class Dispatch:
    """Makes Starlette endpoints of routes."""

    def __init__(self, book: Book, refusals: Refusals) -> None:
        self._book = book
        self._refusals = refusals

    def on_paths(self, table: Sequence[Route]) -> list[routing.BaseRoute]:
        paths: dict[str, dict[str, Endpoint]] = {}
        for route in table:
            paths.setdefault(route.path, {})[route.method] = partial(self._answer, route)
        return [route_of(path, self.guarded, **endpoints) for path, endpoints in paths.items()]

    async def _answer(self, route: Route, request: Request) -> Response:
        grant = await self.grant_of(request)
        names = request.path_params
        grant.authorize(route.verb, names.get("tag") or names.get("type") or names.get("space"), route.scheme)
        query = read_query(request.scope["query_string"], route.query)
        # The body last: a caller without rights must not make this worker hold 64 KB for each connection.
        return await route.handler(Call(request, grant, query, read_body(await body_within(request), route.body)))

    def guarded(self, answer: Endpoint) -> Endpoint:
        """Wrap an endpoint so that its errors become problem+json."""

        async def run(request: Request) -> Response:
            try:
                response = await answer(request)
            except AllocatorError as error:
                return self._problem(error, request)
            response.headers["x-request-id"] = request_name(headers_of(request))
            return response

        return run

    async def grant_of(self, request: Request) -> Grant:
        grant = await self._book.of(headers_of(request))
        mark(request.scope, grant)
        return grant

    def _problem(self, error: AllocatorError, request: Request) -> Response:
        status, headers, body = self._refusals.report(error, request.scope)
        return Response(body, status, headers)

    async def of_framework(self, request: Request, error: Exception) -> Response:
        """Answer an error of Starlette, or an unexpected exception, whose traceback Starlette logs."""
        status, headers = 500, {}
        if isinstance(error, HTTPException):
            status, headers = error.status_code, dict(error.headers or {})
        message = MESSAGES.get(status, "the request was refused")
        if status == 405:
            message = f"{request.method} is not allowed here; allowed: {headers.get('Allow', 'none')}"
        return self._problem(HttpRefusal(status, message, **headers), request)


def route_of(path: str, guard: Callable[[Endpoint], Endpoint], **endpoints: Endpoint) -> routing.Route:
    """Make one Starlette route for all methods of a path, so that a 405 lists all allowed methods."""

    async def answer(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return routing.Route(path, guard(answer), methods=list(endpoints))


def headers_of(request: Request) -> dict[bytes, bytes]:
    return dict(request.scope["headers"])


async def body_within(request: Request, most: int = MAX_BODY) -> bytes:
    """Read the body; refuse one that is too large or too slow."""
    too_large = HttpRefusal(413, f"the body may have at most {most} bytes", Connection="close")
    length = request.headers.get("content-length", "0")
    # 20 digits are above any limit. `int` refuses more than 4300, and a header may have 16,384.
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > most:
                    raise too_large
    except TimeoutError:
        raise HttpRefusal(408, f"the body must arrive within {BODY_SECONDS:g} seconds", Connection="close") from None
    except ClientDisconnect:
        raise HttpRefusal(400, "the client disconnected before the end of the body") from None
    return bytes(raw)


def json_response(body: Any, status: int = 200) -> Response:
    """Make a response of encoded JSON (bytes), or of a value to encode."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(content, status, dict(NO_STORE), "application/json")
