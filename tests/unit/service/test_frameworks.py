"""What the service asks of FastAPI, Starlette and granian beyond what their versions promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from granian.server.embed import Server
from starlette.routing import Match

from allocator.service import routes
from allocator.service.dispatch import GuardedRoute
from allocator.service.handlers import IdHandlers
from allocator.service.http_server import HttpServer

ROOT = Path(__file__).parents[3]
NOTHING: Any = type("Nothing", (), {"sequences": None, "databases": None})()
MADE = list(routes.routes(IdHandlers(NOTHING, NOTHING, NOTHING)))


def test_a_framework_without_a_promise_of_its_own_has_an_upper_bound():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    bounded = {re.split("[^a-z]", one)[0] for one in extra if ",<" in one}
    assert bounded >= {"fastapi", "granian", "pydantic", "starlette"}


def test_routes_of_our_own_class_are_served_and_described():
    """`FastAPI(routes=…)` keeps their class, and OpenAPI says of each whether it takes a body, as we do."""
    app = FastAPI(routes=MADE)
    described = app.openapi()["paths"]
    said = {}
    for path, methods in described.items():
        for method, each in methods.items():
            said[path, method.upper()] = "requestBody" in each

    ours = [one for one in app.routes if isinstance(one, GuardedRoute)]
    assert ours == MADE
    assert said == {(one.path, *one.methods): one.takes_body for one in ours}
    assert set(said.values()) == {False, True}
    scope = {"type": "http", "method": "POST", "path": "/v1/meteor", "headers": []}
    assert [one.path for one in ours if one.matches(scope)[0] is Match.FULL] == ["/v1/meteor"]


def test_no_private_or_undocumented_attribute_of_a_route_is_read():
    text = "\n".join(path.read_text() for path in (ROOT / "allocator" / "service").rglob("*.py"))
    assert re.findall(r"\.(?:dependant|body_field|response_field|secure_cloned_response_field|unique_id)\b", text) == []


def test_granian_calls_what_our_server_overrides():
    """Private methods of its embedded server: under another name it would open a socket of its own."""
    ours = {name for name in vars(HttpServer) if re.match("_[a-z]", name)}
    assert ours
    assert [name for name in ours if not hasattr(Server, name)] == []
