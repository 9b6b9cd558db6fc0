"""The description of the service, written from the table of routes; and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from allocator.service.dispatch import Route
from allocator.service.handlers import CONDITIONS
from allocator.service.parameters import Field
from allocator.service.problems import CONTENT_TYPE
from allocator.service.routes import CLIENTS, IDS, INSPECT, PATHS, TAGS
from allocator.service.schemas import PROBLEM

GROUPS = (
    (IDS, "Ids to use at once. Each request gets other ids, also when it is repeated."),
    (CLIENTS, "Ranges and numbers that a client library keeps in memory, to make ids itself."),
    (INSPECT, "What an id says: its scheme, its time, its fields."),
    (TAGS, "A tag is one sequence of ids. Its settings, and how far it is used up."),
)
"""The headings of the page, and what is below each."""
PATH_NAME = re.compile(r"\{(\w+)\}")
ALWAYS = {
    400: "Something in the request is not as it must be",
    401: "A token is needed that is valid here",
    403: "The token is not good for this",
    404: "There is no such path or tag",
    408: "The request did not arrive in time",
    409: "The tag exists already, or the lease was lost",
    410: "The tag has given its last id",
    413: "The body is too large",
    414: "The query is too large",
    429: "The rate of the token is used up; Retry-After says for how long",
    503: "The database is away, or must be mended; Retry-After says when to ask again",
}
"""What any route may refuse with; which error means which is in `problems`."""
ABOUT = (
    "Unique 64-bit ids. They are text in JSON, since a browser reads 9007199254740993 as 9007199254740992. A request "
    "that is repeated brings other ids: a gap is free, a duplicate never happens."
)


def document(routes: list[Route], version: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "allocator",
            "version": version,
            "description": ABOUT,
        },
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
        found["parameters"] += [header_parameter(name) for name in CONDITIONS]
    if route.body:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body_schema(route.body)}}}
    return found


def path_parameter(name: str) -> dict[str, Any]:
    pattern, example = PATHS[name]
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "path", "required": True, "schema": schema, "example": example}


def query_parameter(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "in": "query",
        "required": field.required,
        "description": field.about,
        "schema": dict(field.schema),
        **({} if field.example is None else {"example": field.example}),
    }


def header_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string", "enum": ["*"]}}


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
    return {
        "description": sentence,
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>allocator</title>
<link rel="stylesheet" href="/docs/swagger-ui.css"><link rel="icon" href="data:,">
</head>
<body><div id="ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script>
</body>
</html>
"""
START = b'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true, validatorUrl: null});\n'
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"


VENDOR = Path(__file__).parent / "vendor"
"""What comes from other projects, in the versions of `versions.json`."""
ASSETS = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
"""What the page needs of Swagger UI; the page that it brings itself loads its example from another host."""


def asset(name: str) -> bytes:
    """A file of Swagger UI, which is served from here, since a page must work without internet."""
    return (VENDOR / "swagger-ui-dist" / name).read_bytes()
