"""The routes of the API: their paths, their rights, and their description in OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any

from fastapi import FastAPI

from allocator.schemes.token import ADMINISTER, DRAW, METEOR, OBJECTID, READ, SNOWFLAKE
from allocator.service import schemas
from allocator.service.dispatch import ANY_TOKEN, GuardedRoute, Right
from allocator.service.error_responses import CONTENT_TYPE
from allocator.service.handlers import CONDITIONS, IdHandlers

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
SENTENCES = {
    400: "The request is invalid",
    401: "The request needs a valid token",
    403: "The token does not allow this",
    404: "The path or tag does not exist",
    408: "The request did not arrive in time",
    409: "The tag exists already, the lease was lost, or the database lost ids that the client has seen",
    410: "The tag has issued its last id",
    413: "The body is too large",
    414: "The query is too long",
    429: "The token has used its rate of nodes and workers; retry after the seconds in Retry-After",
    503: "The database is unavailable or needs repair; retry after the seconds in Retry-After",
}
"""The error statuses of every route; `error_responses` maps errors to them."""
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
