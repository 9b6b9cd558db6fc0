"""From a request to its handler, and back: the way of every route that is not hot, and of the first hot request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette import routing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import AllocatorError
from allocator.service.auth import Book, Grant, mark
from allocator.service.parameters import MAX_BODY, Field, read_body, read_query
from allocator.service.problems import NO_STORE, HttpRefusal, Refusals, request_name

BODY_SECONDS = 10.0

Endpoint = Callable[[Request], Awaitable[Response]]

SENTENCES = {404: "there is no such path; the paths are described at /docs", 500: "the service made a mistake"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is allowed, and what it holds."""

    request: Request
    grant: Grant
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    def name(self, parameter: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[parameter])


@dataclass(frozen=True, slots=True)
class Route:
    """`verb` is what a token must be good for, on the tag or type in the path; where a `scheme` is named, on that.

    A token is needed also without a verb. `created`: it may answer 201. `group`: under which heading it is described;
    the docstring of `handler` describes it.
    """

    group: str
    method: str
    path: str
    handler: Callable[[Asked], Awaitable[Response]]
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
        """One route for all methods of a path, so that a method which is not allowed is told of all that are."""
        methods: dict[str, dict[str, Route]] = {}
        for route in table:
            methods.setdefault(route.path, {})[route.method] = route
        return [routing.Route(path, self._endpoint(routes), methods=list(routes)) for path, routes in methods.items()]

    def _endpoint(self, by_method: Mapping[str, Route]) -> Endpoint:
        async def answer(request: Request) -> Response:
            route = by_method["GET" if request.method == "HEAD" else request.method]
            return await route.handler(await self._asked(route, request))

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
        names = request.path_params
        grant = await self.grant_of(request)
        grant.let_in(route.verb, names.get("tag") or names.get("type"), route.scheme)
        query = read_query(request.scope["query_string"], route.query)
        return Asked(request, grant, query, read_body(await body_within(request), route.body))

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
    too_large = HttpRefusal(413, f"a body has at most {most} bytes", Connection="close")
    length = request.headers.get("content-length", "0")
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
        raise HttpRefusal(400, "the body did not arrive as a whole") from None
    return bytes(raw)


def json_response(body: Any, status: int = 200) -> Response:
    """Of bytes that are JSON already, or of what becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(content, status, dict(NO_STORE), "application/json")
