"""The routes of Leaf and tinyid, for their clients. They create no tag.

    GET /api/segment/get/{key}          the next id of a tag, as text
    GET /api/snowflake/get/{key}        a snowflake id, whatever the key

Source: Leaf, LeafController.

    /tinyid/id/nextId                   {"data": [1, 2], "code": 200, "message": ""}
    /tinyid/id/nextIdSimple             1,2
    /tinyid/id/nextSegmentIdSimple      currentId,loadingId,maxId,delta,remainder

Both take GET and POST, tinyid with a query or a form. A segment holds the ids of `(currentId, maxId]` with
`id % delta == remainder`; at `loadingId` a client requests the next segment. Source: tinyid, IdContronller, SegmentId.
Errors are those of all other routes: to these clients each status but 200 is a failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.schemes.token import DRAW, SNOWFLAKE
from allocator.service.auth import TokenCache
from allocator.service.dispatch import MAX_FORM, Dispatch, Endpoint, body_within, headers_of, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.routes import IdHandlers
from allocator.service.served_ids import MAX_COUNT, SEGMENT

LOADING_PERCENT = 20
"""As in tinyid: its clients load the next segment once they have used this part."""
INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)

Fields = Mapping[str, str]
Act = Callable[[Fields], Awaitable[Any]]


def both_ways(path: str, dispatch: Dispatch, answer: Endpoint) -> list[Route]:
    """The routes with and without a trailing slash, which the frameworks of these servers treat alike."""
    routes = [Route(path + slash, dispatch.guarded(answer), methods=["GET", "POST"]) for slash in ("", "/")]
    for route in routes:
        route.methods = {"GET", "POST"}  # Starlette adds HEAD, which would draw an id
    return routes


def text(body: str) -> Response:
    return Response(body, 200, dict(NO_STORE), "text/plain;charset=UTF-8")


def of_leaf(ids: IdHandlers, dispatch: Dispatch) -> list[Route]:
    async def answer(request: Request, scheme: str | None) -> Response:
        key = request.path_params["key"]
        (await dispatch.principal_of(request)).check(DRAW, scheme or key)
        source = ids.sources.snowflake if scheme else await ids.sources.of_tag(key)
        (number,) = await source.take(1)
        return text(str(number))

    return [
        *both_ways("/api/segment/get/{key}", dispatch, partial(answer, scheme=None)),
        *both_ways("/api/snowflake/get/{key}", dispatch, partial(answer, scheme=SNOWFLAKE)),
    ]


def of_tinyid(ids: IdHandlers, dispatch: Dispatch, token_cache: TokenCache) -> list[Route]:
    async def next_id(fields: Fields) -> list[int]:
        count = batch_size(fields)
        if count < 1:
            return []
        source = await ids.sources.of_tag(fields["bizType"])
        return await source.take(count)

    async def next_segment(fields: Fields) -> range:
        return await ids.sources.claim(fields["bizType"], SEGMENT, {}, exact=False)

    def both(name: str, act: Act, as_text: Callable[[Any], str] | None) -> list[Route]:
        async def answer(request: Request) -> Response:
            fields = await fields_of(request)
            await authorize(token_cache, fields, headers_of(request))
            found = await act(fields)
            return text(as_text(found)) if as_text else record(found)

        return both_ways(f"/tinyid/id/{name}", dispatch, answer)

    return [
        *both("nextId", next_id, None),
        *both("nextIdSimple", next_id, lambda found: ",".join(map(str, found))),
        *both("nextSegmentIdSimple", next_segment, segment_text),
    ]


async def authorize(token_cache: TokenCache, fields: Fields, headers: dict[bytes, bytes]) -> None:
    tag, token = fields.get("bizType", ""), fields.get("token", "")
    if not tag:
        raise HttpRefusal(400, "bizType is needed")
    given = {b"authorization": b"Bearer " + token.encode()} if token else {}
    (await token_cache.find(headers | given)).check(DRAW, tag)


async def fields_of(request: Request) -> Fields:
    """The fields of the query and the form. As in a servlet, the query wins."""
    form = parse_qsl((await body_within(request, MAX_FORM)).decode("latin-1"))
    return dict([*form, *parse_qsl(request.scope["query_string"].decode("latin-1"))])


def batch_size(fields: Fields) -> int:
    given = fields.get("batchSize", "")
    if not given:
        return 1
    if not INTEGER.fullmatch(given):
        raise HttpRefusal(400, f"batchSize must be a whole number, got {given!a:.80}")
    return min(int(given), MAX_COUNT)  # lowered without a word, as by tinyid


def segment_text(segment: range) -> str:
    """A segment as tinyid's clients read it, which add `delta` before they use an id."""
    current, last = segment.start - segment.step, segment[-1]
    loading = current + (last - current) * LOADING_PERCENT // 100
    return f"{current},{loading},{last},{segment.step},{segment.start % segment.step}"


def record(data: object) -> Response:
    fields = {"data": data, "code": 200, "message": ""}
    return json_response(json.dumps(fields, separators=(",", ":")).encode())
