"""The routes of Leaf, for its clients.

    GET /api/segment/get/{key}      the next id of a tag, as text
    GET /api/snowflake/get/{key}    a snowflake id, whatever the key

Errors have status 500 and a negative number in `message`, as in Leaf: -2 for an unknown key, -3 for an unavailable
database. A request never creates a key. Source: Leaf, LeafController.
"""

from __future__ import annotations

import json
import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.errors import AccessDenied, AllocatorError, InvalidTag, UnknownTag
from allocator.rules.token import DRAW, SNOWFLAKE
from allocator.service.compat import routes_of, text
from allocator.service.dispatch import Dispatch
from allocator.service.error_responses import NO_STORE
from allocator.service.handlers import IdHandlers

UNKNOWN, NOT_READY = -2, -3


def routes(ids: IdHandlers, dispatch: Dispatch) -> list[Route]:
    async def answer(request: Request, scheme: str | None) -> Response:
        key = request.path_params["key"]
        (await dispatch.principal_of(request)).check(DRAW, scheme or key)
        source = ids.sources.snowflake if scheme else await ids.tags.source(key)
        (number,) = await source.take(1)
        return text(str(number))

    return [
        *routes_of("/api/segment/get/{key}", dispatch.guarded(partial(answer, scheme=None), failure)),
        *routes_of("/api/snowflake/get/{key}", dispatch.guarded(partial(answer, scheme=SNOWFLAKE), failure)),
    ]


def failure(error: AllocatorError, request: Request) -> Response | None:
    if isinstance(error, AccessDenied):  # not of Leaf, which has no tokens
        return None
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
