"""The routes of health, readiness, metrics and the description."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from allocator.schemes.token import READ
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.metric_updates import SECOND, MetricsUpdater
from allocator.service.metrics import Metrics


def routes(dispatch: Dispatch, updater: MetricsUpdater, metrics: Metrics) -> list[BaseRoute]:
    text, written_at, turn = b"", -inf, asyncio.Lock()

    async def healthy(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(request: Request) -> Response:
        if reason := updater.unready_reason():
            raise HttpRefusal(503, reason)
        return json_response({"status": "ready"})

    async def metrics_text(request: Request) -> Response:
        principal = await dispatch.principal_of(request)
        principal.check(READ, "*")  # the series name all tags
        nonlocal text, written_at
        async with turn:  # who asks meanwhile, or soon after, gets the same text
            if monotonic() - written_at >= SECOND:
                text, written_at = await asyncio.to_thread(metrics.text), monotonic()
        return Response(text, 200, dict(NO_STORE), "text/plain; version=0.0.4; charset=utf-8")

    async def described(request: Request) -> Response:
        return json_response(request.app.state.description)

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics_text)),
        Route("/openapi.json", guarded(described)),
    ]
