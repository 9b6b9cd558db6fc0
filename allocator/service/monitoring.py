"""The routes of health, readiness, metrics and the description."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from allocator.rules.token import READ
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.metric_updates import MetricsUpdater
from allocator.service.metrics import Metrics
from allocator.service.rate_limits import ReadQueue
from allocator.service.routes import description

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(dispatch: Dispatch, updater: MetricsUpdater, metrics: Metrics) -> list[BaseRoute]:
    queue, description_queue = ReadQueue("the metrics"), ReadQueue("the description")

    async def healthy(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(request: Request) -> Response:
        if reason := updater.unready_reason():
            raise HttpRefusal(503, reason)
        return json_response({"status": "ready"})

    async def metrics_text(request: Request) -> Response:
        principal = await dispatch.principal_of(request)
        principal.check(READ, "*")  # the series name all tags

        async def written() -> bytes:
            updater.update()
            return await asyncio.to_thread(metrics.text)

        return Response(await queue.run(written), 200, dict(NO_STORE), METRICS_TYPE)

    async def described(request: Request) -> Response:
        # On a thread: FastAPI makes it for the first request, in 50 ms in which no id would be given.
        return json_response(await description_queue.run(lambda: asyncio.to_thread(description, request.app)))

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics_text)),
        Route("/openapi.json", guarded(described)),
    ]


async def to_description(request: Request) -> Response:
    """Answer / without a console, or for a client that accepts JSON only."""
    return RedirectResponse("/openapi.json")
