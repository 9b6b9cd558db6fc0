"""The routes of Leaf, for its clients.

    GET /api/segment/get/{key}      the next id of a tag, as text
    GET /api/snowflake/get/{key}    a snowflake id, whatever the key

Errors have status 500 and a negative number in `message`, as in Leaf: -2 for an unknown key, -3 for an unavailable
database. A request never creates a key. Source: Leaf, LeafController.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.errors import AllocatorError, InvalidTag, UnknownTag
from allocator.rules.token import DRAW
from allocator.service.dispatch import Dispatch
from allocator.service.handlers import Ids
from allocator.service.problems import NO_STORE
from allocator.service.sources import SNOWFLAKE, Source

UNKNOWN, NOT_READY = -2, -3
METHODS = ["GET", "POST"]


def routes(ids: Ids, dispatch: Dispatch) -> list[Route]:
    async def of_key(key: str) -> Source:
        return await ids.sequences.source(key, create=False)

    async def of_any(key: str) -> Source:
        return ids.sources.snowflake

    def routes_of(path: str, source_of: Callable[[str], Awaitable[Source]], scheme: str | None = None) -> list[Route]:
        """The routes with and without a trailing slash, which Leaf's framework treats alike."""

        async def answer(request: Request) -> Response:
            key = request.path_params["key"]
            grant = await dispatch.grant_of(request)
            grant.authorize(DRAW, key, scheme)
            try:
                (number,) = await (await source_of(key)).take(1)
            except AllocatorError as error:
                return failure(request, error)
            grant.charge(1)
            return Response(str(number), 200, dict(NO_STORE), "text/plain;charset=UTF-8")

        return [Route(path + slash, dispatch.guarded(answer), methods=METHODS) for slash in ("", "/")]

    return [*routes_of("/api/segment/get/{key}", of_key), *routes_of("/api/snowflake/get/{key}", of_any, SNOWFLAKE)]


def failure(request: Request, error: AllocatorError) -> Response:
    code = UNKNOWN if isinstance(error, UnknownTag | InvalidTag) else NOT_READY
    body = {
        "timestamp": int(time.time() * 1000),
        "status": 500,
        "error": "Internal Server Error",
        "exception": "com.sankuai.inf.leaf.server.exception.LeafServerException",
        "message": f"Result{{id={code}, status=EXCEPTION}}",
        "path": request.scope["raw_path"].decode("latin-1"),
    }
    return Response(json.dumps(body), 500, dict(NO_STORE), "application/json;charset=UTF-8")
