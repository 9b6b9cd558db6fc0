"""The routes of other id servers, for their clients."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from allocator.service.dispatch import Endpoint
from allocator.service.error_responses import NO_STORE


def routes_of(path: str, answer: Endpoint) -> list[Route]:
    """The routes with and without a trailing slash, which the frameworks of these servers treat alike."""
    routes = [Route(path + slash, answer, methods=["GET", "POST"]) for slash in ("", "/")]
    for route in routes:
        route.methods = {"GET", "POST"}  # Starlette adds HEAD, which would draw an id
    return routes


def text(body: str) -> Response:
    return Response(body, 200, dict(NO_STORE), "text/plain;charset=UTF-8")
