"""From a request to its handler, and back: the way of every route that is not hot, and of the first hot request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import AllocatorError
from allocator.service.auth import Book, Grant
from allocator.service.caller import caller_of, mark
from allocator.service.forms import MAX_BODY, read_body, read_query
from allocator.service.problems import HttpRefusal
from allocator.service.refusal_log import NO_STORE, Refusals, request_name
from allocator.service.request import Answer, Asked
from allocator.service.routes import Route

BODY_SECONDS = 10.0

Endpoint = Callable[[Request], Awaitable[Response]]

SENTENCES = {404: "there is no such path; the paths are described at /docs", 500: "the service made a mistake"}


class Dispatch:
    """Makes Starlette endpoints of routes."""

    def __init__(self, book: Book, refusals: Refusals) -> None:
        self._book = book
        self._refusals = refusals

    def endpoint(self, routes: Sequence[Route]) -> Endpoint:
        """For the routes of one path, which differ by their methods."""
        by_method = {route.method: route for route in routes}

        async def answer(request: Request) -> Response:
            route = by_method["GET" if request.method == "HEAD" else request.method]
            return as_response(await route.handler(await self._asked(route, request)))

        return self.guarded(answer)

    def guarded(self, answer: Endpoint) -> Endpoint:
        """An endpoint of which every error becomes a problem."""

        async def run(request: Request) -> Response:
            try:
                response = await answer(request)
            except AllocatorError as error:
                return self._refusal(error, request)
            response.headers["x-request-id"] = request_name(headers_of(request))
            return response

        return run

    async def _asked(self, route: Route, request: Request) -> Asked:
        grant = await self.grant_of(request)
        names = request.path_params
        grant.let_in(route.verb, route.name_in(names), route.scheme)
        query = read_query(request.scope["query_string"], route.query)
        raw = await body_within(request)
        body = read_body(raw, route.body) if route.body else no_body(raw)
        return Asked(grant, request.scope["path"], names, query, body, request.headers, caller_of(request.scope))

    async def grant_of(self, request: Request) -> Grant:
        grant = await self._book.of(headers_of(request))
        mark(request.scope, grant)
        return grant

    def _refusal(self, error: AllocatorError, request: Request) -> Response:
        status, headers, body = self._refusals.tell(error, request.scope)
        return Response(body, status, headers)

    async def of_framework(self, request: Request, error: Exception) -> Response:
        """What the framework refuses, and mistakes of ours, whose traceback it logs."""
        status, headers = 500, {}
        if isinstance(error, HTTPException):
            status, headers = error.status_code, dict(error.headers or {})
        sentence = SENTENCES.get(status, "the request was refused")
        if status == 405:
            sentence = f"{request.method} is not allowed here; allowed are {headers.get('Allow', 'no others')}"
        return self._refusal(HttpRefusal(status, sentence, **headers), request)


def headers_of(request: Request) -> dict[bytes, bytes]:
    return dict(request.scope["headers"])


async def body_within(request: Request, most: int = MAX_BODY) -> bytes:
    """The body, if it is neither too large nor too slow."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large(most)
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > most:
                    raise too_large(most)
    except TimeoutError:
        raise HttpRefusal(408, f"the body must arrive within {BODY_SECONDS:g} seconds", Connection="close") from None
    except ClientDisconnect:
        raise HttpRefusal(400, "the body did not arrive as a whole") from None
    return bytes(raw)


def too_large(most: int) -> HttpRefusal:
    return HttpRefusal(413, f"a body has at most {most} bytes", Connection="close")


def no_body(raw: bytes) -> dict[str, Any]:
    """Where none is expected, one that says nothing does no harm."""
    if raw.strip() not in {b"", b"{}"}:
        raise HttpRefusal(400, "this takes no body; its parameters stand in the query")
    return {}


def as_response(answer: Answer) -> Response:
    body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    return Response(body, answer.status, dict(NO_STORE), "application/json")
