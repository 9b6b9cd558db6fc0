"""The routes of tinyid, for clients that were written for it; by GET or POST, with a query or a form.

    /tinyid/id/nextId               {"data": [1, 2], "code": 200, "message": ""}
    /tinyid/id/nextIdSimple         1,2
    /tinyid/id/nextSegmentId        {"data": {"maxId": …}, "code": 200, "message": ""}
    /tinyid/id/nextSegmentIdSimple  currentId,loadingId,maxId,delta,remainder

The status is 200 also for what fails: code 5 for a token, 6 for the rest, and an empty text for the simple ones. A
segment holds the ids of `(currentId, maxId]` that leave `remainder` when divided by `delta`; at `loadingId` a client
asks for the next. Source: tinyid, IdContronller and SegmentId.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.errors import AccessDenied, AllocatorError, InvalidTag, UnknownTag
from allocator.rules.token import DRAW
from allocator.schemes.checks import MAX_IDS_A_CALL
from allocator.service.auth import Book, Grant
from allocator.service.dispatch import Dispatch, body_within, headers_of
from allocator.service.handlers import Ids
from allocator.service.parameters import MAX_FORM
from allocator.service.problems import NO_STORE, HttpRefusal, detail_of
from allocator.service.sources import Source

METHODS = ["GET", "POST"]
OK, TOKEN_ERROR, SYSTEM_ERROR = 200, 5, 6
LOADING_PERCENT = 20
MAX_BATCH = 100_000
"""The greatest `batch.size.max` of its own configurations; whoever asks for more is given so many there too."""
INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)

Fields = Mapping[str, str]


def routes(ids: Ids, dispatch: Dispatch, book: Book) -> list[Route]:
    async def next_id(fields: Fields, grant: Grant) -> list[int]:
        count = batch_size(fields)
        if count < 1:
            return []
        source = await ids.sequences.source(fields["bizType"], create=False)
        found = await taken(source, count)
        grant.charge(count)
        return found

    async def next_segment(fields: Fields, grant: Grant) -> dict[str, int]:
        segment = await ids.sequences.claim(fields["bizType"], None, {}, exact=False, create=False)
        grant.charge(len(segment))
        return segment_id(segment)

    def answering(act: Act, as_text: Callable[[Any], str] | None) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            fields = await fields_of(request)
            batch_size(fields)
            try:
                found = await act(fields, await granted(book, fields, headers_of(request)))
            except AllocatorError as error:
                return text("") if as_text else record(None, *failure(error, fields))
            return text(as_text(found)) if as_text else record(found, OK, "")

        return dispatch.guarded(answer)

    def routes_of(name: str, act: Act, as_text: Callable[[Any], str] | None) -> list[Route]:
        """With a slash behind or without one: its framework does not tell them apart."""
        answer = answering(act, as_text)
        return [Route(f"/tinyid/id/{name}{slash}", answer, methods=METHODS) for slash in ("", "/")]

    return [
        *routes_of("nextId", next_id, None),
        *routes_of("nextIdSimple", next_id, lambda found: ",".join(map(str, found))),
        *routes_of("nextSegmentId", next_segment, None),
        *routes_of("nextSegmentIdSimple", next_segment, simple),
    ]


Act = Callable[[Fields, Grant], Awaitable[Any]]


async def granted(book: Book, fields: Fields, headers: dict[bytes, bytes]) -> Grant:
    tag, token = fields.get("bizType", ""), fields.get("token", "")
    if not tag or not token:
        raise AccessDenied("bizType and token are needed")
    grant = await book.of_secret(token.encode(), headers)
    grant.let_in(DRAW, tag)
    return grant


async def fields_of(request: Request) -> Fields:
    """The query first, as a servlet does."""
    form = parse_qsl((await body_within(request, MAX_FORM)).decode("latin-1"))
    return dict([*form, *parse_qsl(request.scope["query_string"].decode("latin-1"))])


def batch_size(fields: Fields) -> int:
    given = fields.get("batchSize", "")
    if not given:
        return 1
    if not INTEGER.fullmatch(given):
        raise HttpRefusal(400, f"batchSize must be a whole number, got {given!a:.80}")
    return min(int(given), MAX_BATCH)


async def taken(source: Source, count: int) -> list[int]:
    """So many ids, or none."""
    await source.check_remaining(count)
    found: list[int] = []
    while len(found) < count:
        found += map(int, await source.take_part(min(count - len(found), MAX_IDS_A_CALL)))
    return found


def segment_id(segment: range) -> dict[str, int]:
    """As its clients count: they add `delta` before they use an id."""
    current, last = segment.start - segment.step, segment[-1]
    return {
        "maxId": last,
        "loadingId": current + (last - current) * LOADING_PERCENT // 100,
        "currentId": current,
        "delta": segment.step,
        "remainder": segment.start % segment.step,
    }


def simple(found: Mapping[str, int]) -> str:
    return ",".join(str(found[name]) for name in ("currentId", "loadingId", "maxId", "delta", "remainder"))


def failure(error: AllocatorError, fields: Fields) -> tuple[int, str]:
    if isinstance(error, AccessDenied):
        return TOKEN_ERROR, "token is error"
    if isinstance(error, UnknownTag | InvalidTag):
        return SYSTEM_ERROR, f"can not find biztype:{fields.get('bizType', '')}"
    return SYSTEM_ERROR, detail_of(error)


def text(body: str) -> Response:
    return Response(body, 200, dict(NO_STORE), "text/plain;charset=UTF-8")


def record(data: object, code: int, message: str) -> Response:
    body = json.dumps({"data": data, "code": code, "message": message}, separators=(",", ":"))
    return Response(body, 200, dict(NO_STORE), "application/json;charset=UTF-8")
