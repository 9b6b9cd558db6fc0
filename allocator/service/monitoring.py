"""The routes of health, readiness, metrics and the description."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from allocator.rules.token import READ
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.metric_updates import SECOND, MetricsUpdater
from allocator.service.metrics import Metrics
from allocator.service.routes import description

T = TypeVar("T")

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Shared(Generic[T]):
    """A result that all requests share: made on a thread, at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._made_at = seconds, -inf
        self._turn = asyncio.Lock()
        self._result: T

    async def get(self, make: Callable[[], T]) -> T:
        async with self._turn:
            if monotonic() - self._made_at >= self._seconds:
                self._result, self._made_at = await asyncio.to_thread(make), monotonic()
            return self._result


def routes(dispatch: Dispatch, updater: MetricsUpdater, metrics: Metrics) -> list[BaseRoute]:
    text, about = Shared[bytes](SECOND), Shared[dict[str, Any]](inf)

    async def healthy(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(request: Request) -> Response:
        if reason := updater.unready_reason():
            raise HttpRefusal(503, reason)
        return json_response({"status": "ready"})

    async def metrics_text(request: Request) -> Response:
        principal = await dispatch.principal_of(request)
        principal.check(READ, "*")  # the series name all tags
        return Response(await text.get(metrics.text), 200, dict(NO_STORE), METRICS_TYPE)

    async def described(request: Request) -> Response:
        return json_response(await about.get(partial(description, request.app)))

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics_text)),
        Route("/openapi.json", guarded(described)),
    ]


async def to_description(request: Request) -> Response:
    """Answer / without a console."""
    return RedirectResponse("/openapi.json")
