"""The OpenAPI document, generated from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allocator.service.dispatch import Route
from allocator.service.error_responses import CONTENT_TYPE
from allocator.service.handlers import CONDITIONS
from allocator.service.parameters import Field
from allocator.service.routes import CLIENTS, IDS, INSPECT, PATHS, TAGS
from allocator.service.schemas import PROBLEM

GROUPS = (
    (IDS, "Ids to use at once. Each request returns new ids, even a repeated one."),
    (CLIENTS, "Segments and numbers from which a client library makes ids in memory."),
    (INSPECT, "The scheme, time and fields of an id."),
    (TAGS, "A tag is one sequence of ids. Its settings and its last claimed id."),
)
ASTERISK = {"type": "string", "enum": ["*"]}
PATH_NAME = re.compile(r"\{(\w+)\}")
ALWAYS = {
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
ABOUT = (
    "Unique 64-bit ids. JSON holds them as strings, since a browser reads the number 9007199254740993 as "
    "9007199254740992. A repeated request returns new ids: gaps are harmless, duplicates never happen."
)


def document(routes: list[Route], version: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "allocator", "version": version, "description": ABOUT},
        "tags": [{"name": name, "description": about} for name, about in GROUPS],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def operation(route: Route) -> dict[str, Any]:
    answer = {"description": "Done", "content": {"application/json": {"schema": dict(route.answer)}}}
    problems = {str(status): problem_response(sentence) for status, sentence in ALWAYS.items()}
    made = {"201": answer | {"description": "Created"}} if route.created else {}
    found: dict[str, Any] = {
        "summary": (route.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "tags": [route.group],
        "operationId": route.handler.__qualname__.replace(".", "_").lower(),
        "parameters": [*map(path_parameter, PATH_NAME.findall(route.path)), *map(query_parameter, route.query)],
        "responses": {"200": answer, **made, **problems},
    }
    if route.created:
        found["parameters"] += [parameter("header", name, ASTERISK) for name in CONDITIONS]
    if route.body:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body_schema(route.body)}}}
    return found


def parameter(place: str, name: str, schema: Mapping[str, Any], required: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": dict(schema), **more}


def path_parameter(name: str) -> dict[str, Any]:
    pattern, example = PATHS[name]
    return parameter("path", name, {"type": "string", "pattern": pattern}, True, example=example)


def query_parameter(field: Field) -> dict[str, Any]:
    example = {} if field.example is None else {"example": field.example}
    return parameter("query", field.name, field.schema, field.required, description=field.about, **example)


def body_schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    required = [field.name for field in fields if field.required]
    return {
        "type": "object",
        "properties": {field.name: {**field.schema, "description": field.about} for field in fields},
        "required": required,
        "additionalProperties": False,
        "examples": [{field.name: field.example for field in fields if field.example is not None}],
    }


def problem_response(sentence: str) -> dict[str, Any]:
    return {"description": sentence, "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
