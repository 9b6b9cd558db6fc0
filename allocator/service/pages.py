"""The routes of health, readiness, metrics and the description."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from allocator.rules.token import READ
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.metric_updates import Watch
from allocator.service.metrics import Figures
from allocator.service.rate_limits import Gate
from allocator.service.routes import description

FIGURES_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(dispatch: Dispatch, watch: Watch, figures: Figures) -> list[BaseRoute]:
    gate = Gate("the metrics")

    async def healthy(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(request: Request) -> Response:
        if trouble := watch.trouble():
            raise HttpRefusal(503, trouble)
        return json_response({"status": "ready"})

    async def metrics(request: Request) -> Response:
        grant = await dispatch.grant_of(request)
        grant.check(READ, "*")  # the series name all tags

        async def written() -> bytes:
            watch.look()
            return await asyncio.to_thread(figures.text)

        return Response(await gate.run(written), 200, dict(NO_STORE), FIGURES_TYPE)

    async def described(request: Request) -> Response:
        return json_response(description(request.app))

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics)),
        Route("/openapi.json", guarded(described)),
    ]


async def to_description(request: Request) -> Response:
    """Answer / without a console, or for a client that accepts JSON only."""
    return RedirectResponse("/openapi.json")
