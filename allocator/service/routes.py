"""The routes of the API: their handlers, paths and rights, and their description in OpenAPI."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from secrets import token_hex
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from allocator.aio import AsyncTags
from allocator.errors import InvalidSetting, MaxValueWentBack, TagExists
from allocator.generators.inspect_id import inspect_id
from allocator.remote.wire import number_lease_to_json, segment_to_json, tag_to_json
from allocator.schemes.formats.id_inspection import inspection_to_json
from allocator.schemes.snowflake import SnowflakeSettings
from allocator.schemes.tag import Tag
from allocator.schemes.token import ADMINISTER, DRAW, METEOR, OBJECTID, READ, SNOWFLAKE
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, length_of
from allocator.service import schemas
from allocator.service.auth import Principal
from allocator.service.dispatch import ANY_TOKEN, GuardedRoute, Right, json_response
from allocator.service.error_responses import CONTENT_TYPE, SENTENCES, ClientIsAhead, HttpRefusal
from allocator.service.log_config import caller_of
from allocator.service.schemas import Name, SpaceName
from allocator.service.served_ids import PageReader, Source, Sources, page_of
from allocator.service_allocator import ServiceAllocator

log = logging.getLogger("allocator.service")

MAX_HOT_SOURCES = 10_000
"""Paths per token that the hot path serves; further ones go through the framework."""

CONDITIONS = ("If-None-Match", "If-Match")


@dataclass(frozen=True, slots=True)
class IdHandlers:
    """The handlers of the routes. FastAPI reads what their arguments and docstrings say.

    tickets: issued tickets by type, for the metrics. reading: held by who reads many tags, one at a time.
    """

    ids: ServiceAllocator
    sources: Sources
    tickets: dict[str, int] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of_tag(self, request: Request, tag: Name, wanted: Annotated[schemas.Count, Query()]) -> Response:
        """The next ids of a tag."""
        create = principal_in(request).token.may_create(tag)
        return await take(request, await self.sources.of_tag(tag, create), wanted.count)

    async def meteor(self, request: Request, wanted: Annotated[schemas.Count, Query()]) -> Response:
        """Meteor ids."""
        return await take(request, self.sources.meteor, wanted.count)

    async def snowflake(self, request: Request, wanted: Annotated[schemas.Count, Query()]) -> Response:
        """Snowflake ids."""
        return await take(request, self.sources.snowflake, wanted.count)

    async def objectids(self, request: Request, wanted: Annotated[schemas.Count, Query()]) -> Response:
        """ObjectIds."""
        return await take(request, self.sources.objectid, wanted.count)

    async def segment(self, request: Request, tag: Name, wanted: Annotated[schemas.Wanted, Query()]) -> Response:
        """A segment of a tag's ids, for a client that serves them from memory."""
        create = principal_in(request).token.may_create(tag)
        try:
            segment = await self.sources.claim(tag, wanted.size, wanted.seen, exact=wanted.exact, create=create)
        except MaxValueWentBack as error:
            raise (ClientIsAhead(*error.args) if wanted.seen else error) from error
        return json_response(segment_to_json(tag, segment))

    async def ticket(self, request: Request, kind: Annotated[Name, Path(alias="type")]) -> Response:
        """The next ticket of a type."""
        async with principal_in(request).connection_slot(self.ids.deadline()):
            number = await self.ids.ticket(kind)
        self.tickets[kind] = self.tickets.get(kind, 0) + 1
        return json_response({"type": kind, "id": str(number)})

    async def node(self, request: Request) -> Response:
        """Register a meteor node."""
        principal = principal_in(request)
        principal.admit_rare(time.monotonic())
        async with principal.connection_slot(self.ids.deadline()):
            return json_response({"node": str(await self.ids.run(self.ids.backend.register_node))})

    async def lease_number(self, request: Request, space: SpaceName, form: schemas.NumberWanted) -> Response:
        """Lease a worker number of a space, or of the snowflakes: @snowflake.

        Count your own time from before the request: the number must not be used for longer than `seconds` after that.
        """
        length, principal = length_of(form.seconds), principal_in(request)
        check_format(space, form)
        principal.admit_rare(time.monotonic())
        claim = NumberClaim(space, form.bits, length, form.now, token_hex(16), form.host, form.process, form.format)
        async with principal.connection_slot(self.ids.deadline()):
            lease = await self.ids.run(self.ids.backend.lease_number, claim)
        return json_response(number_lease_to_json(lease, form.now + length))

    async def renew_number(self, request: Request, space: SpaceName, form: schemas.NumberRenewal) -> Response:
        """Renew the lease of a worker number, or give the number back."""
        length, backend = length_of(form.seconds), self.ids.backend
        lease = NumberLease(space, form.number, form.holder, length)
        async with principal_in(request).connection_slot(self.ids.deadline()):
            await self.ids.run(backend.release_number if form.release else backend.renew_number, lease, form.now)
        return json_response(number_lease_to_json(lease, form.now if form.release else form.now + length))

    async def inspect(
        self, text: Annotated[schemas.Text, Path(alias="id")], wanted: Annotated[schemas.Format, Query()]
    ) -> Response:
        """Inspect an id."""
        return json_response(inspection_to_json(inspect_id(text, **wanted.given())))

    async def list_tags(self, request: Request, wanted: Annotated[schemas.Pages, Query()]) -> Response:
        """List the tags that the token may read, by name.

        A full page has a `next`, even if the next page is empty.
        """
        principal = principal_in(request)
        token = principal.token

        def page(tags: PageReader) -> bytes:
            found = page_of(tags, wanted.after, wanted.limit, lambda name: token.may(READ, name))
            answer: dict[str, Any] = {"tags": [tag_to_json(tag) for tag in found]}
            return json.dumps(answer | ({"next": found[-1].name} if len(found) == wanted.limit else {})).encode()

        async with principal.connection_slot(self.ids.deadline()), self.reading:
            return json_response(await self.ids.run(page, self.ids.page_of_tags))

    async def get_tag(self, request: Request, tag: Name) -> Response:
        """Get the settings of a tag, and its last claimed id.

        The right to draw is enough, because clients that serve ids from memory need the settings.
        """
        principal = principal_in(request)
        if not principal.token.may(READ, tag):
            principal.check(DRAW, tag)
        return json_response(tag_to_json(await self.ids.tags.get(tag)))

    async def put_tag(self, request: Request, tag: Name, form: schemas.Settings) -> Response:
        """Create or change a tag. With If-None-Match: * only create it, with If-Match: * only change it."""
        new, old = (is_given(name, request.headers) for name in CONDITIONS)
        given, caller = form.given(), caller_of(request.scope)
        made, created = await put(self.ids.tags, tag, given, new=new, old=old)
        change = "created" if created else "changed"
        settings = ", ".join(f"{name}={value}" for name, value in given.items()) or "default settings"
        about = {"tag": tag, "change": change, "caller": caller.address, "token": caller.token}
        log.info("tag %r was %s by %s: %s", tag, change, caller, settings, extra=about)
        return json_response(tag_to_json(made), 201 if created else 200)


def principal_in(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


async def take(request: Request, source: Source, count: int) -> Response:
    """Draw ids; the hot path draws those of the next requests for this path."""
    body = await source.answer(count)
    hot = principal_in(request).hot_sources
    if len(hot) < MAX_HOT_SOURCES:
        hot[request.scope["path"]] = source
    return json_response(body)


def check_format(space: str, form: schemas.NumberWanted) -> None:
    """Accept only the service's own format of snowflakes: the first lease of a database chooses it for all."""
    ours = SnowflakeSettings()
    if space == SNOWFLAKE:
        is_right = (form.format, form.bits, length_of(form.seconds)) == (ours.kept, ours.bits, ours.length_ms)
    else:
        is_right = not form.format
    if not is_right:
        raise InvalidSetting(
            f"this service leases numbers of {SNOWFLAKE} for the format {ours.kept}, bits={ours.bits} and "
            f"seconds={ours.lease:g}, and no other space has a format"
        )


async def put(tags: AsyncTags, tag: str, given: dict[str, Any], *, new: bool, old: bool) -> tuple[Tag, bool]:
    """Create or change a tag; with `new` only create it, with `old` only change it. Tell whether it was created."""
    if new and old:
        raise HttpRefusal(400, "If-Match and If-None-Match exclude each other")
    if not old:
        try:
            return await tags.create(tag, **given), True
        except TagExists:
            if new:
                raise
    return await tags.set(tag, **given), False


def is_given(condition: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a request has this condition. Its value must be *, since tags have no ETag."""
    given = [value for name, value in headers.items() if name == condition.lower()]
    if any(value.strip() != "*" for value in given):
        raise HttpRefusal(400, f"{condition} must be *, got {', '.join(given)!a:.80}")
    return bool(given)


IDS, CLIENTS, INSPECT, TAGS = ("Draw ids", "For client libraries", "Inspect ids", "Manage tags")
GROUPS = (
    (IDS, "Ids to use at once. Each request returns new ids, even a repeated one."),
    (CLIENTS, "Segments and numbers from which a client library makes ids in memory."),
    (INSPECT, "The scheme, time and fields of an id."),
    (TAGS, "A tag has ids of its own. Its settings and its last claimed id."),
)
ABOUT = (
    "Unique 64-bit ids. JSON holds them as strings, since a browser reads the number 9007199254740993 as "
    "9007199254740992. A repeated request returns new ids: gaps are harmless, duplicates never happen."
)
PROBLEM = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS = {str(status): {"description": about, "content": PROBLEM} for status, about in SENTENCES.items()}
ASTERISK = {"type": "string", "enum": ["*"]}
CONDITIONAL = [{"name": name, "in": "header", "required": False, "schema": ASTERISK} for name in CONDITIONS]


def routes(ids: IdHandlers) -> Iterator[GuardedRoute]:
    tag, post = "/v1/tags/{tag}", "POST"
    table: tuple[tuple[str, str, str, Callable[..., Any], Any, Right], ...] = (
        (IDS, post, f"{tag}/ids", ids.of_tag, schemas.TaggedIds, Right(DRAW)),
        (IDS, post, "/v1/tickets/{type}", ids.ticket, schemas.Ticket, Right(DRAW)),
        (IDS, post, "/v1/meteor", ids.meteor, schemas.Ids, Right(DRAW, METEOR)),
        (IDS, post, "/v1/snowflake", ids.snowflake, schemas.Ids, Right(DRAW, SNOWFLAKE)),
        (IDS, post, "/v1/objectids", ids.objectids, schemas.ObjectIds, Right(DRAW, OBJECTID)),
        (CLIENTS, post, f"{tag}/segments", ids.segment, schemas.Segment, Right(DRAW)),
        (CLIENTS, post, "/v1/nodes", ids.node, schemas.Node, Right(DRAW, METEOR)),
        (CLIENTS, post, "/v1/workers/{space}", ids.lease_number, schemas.NumberLease, Right(DRAW)),
        (CLIENTS, "PUT", "/v1/workers/{space}", ids.renew_number, schemas.NumberLease, Right(DRAW)),
        (INSPECT, "GET", "/v1/inspect/{id}", ids.inspect, schemas.Inspection, ANY_TOKEN),
        (TAGS, "GET", "/v1/tags", ids.list_tags, schemas.Tags, Right(READ)),
        (TAGS, "GET", tag, ids.get_tag, schemas.Tag, ANY_TOKEN),  # the handler checks: to read or to draw
        (TAGS, "PUT", tag, ids.put_tag, schemas.Tag, Right(ADMINISTER)),
    )
    for group, method, path, handler, answer, right in table:
        summary, _, description = (handler.__doc__ or "").partition("\n")
        yield GuardedRoute(
            path,
            handler,
            right=right,
            methods=[method],
            tags=[group],
            summary=summary.rstrip("."),
            description=cleandoc(description),
            response_model=answer,
            openapi_extra={"parameters": CONDITIONAL} if handler == ids.put_tag else {},
            responses={201: {"model": answer}} if handler == ids.put_tag else None,
            generate_unique_id_function=lambda route: route.name,
        )


def description(app: FastAPI) -> bytes:
    """The description of the API, with what FastAPI does not know: our errors instead of its own, and the token."""
    found = app.openapi()
    for operation in [one for path in found["paths"].values() for one in path.values()]:
        operation["responses"].pop("422", None)
        operation["responses"] |= PROBLEMS
    components = found["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError", "Residue"):  # no route has them
        components.pop(name, None)
    components["Problem"] = schemas.Problem.model_json_schema()
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return json.dumps(found | {"security": [{"token": []}, {}]}).encode()
