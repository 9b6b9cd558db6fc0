"""The routes of health, readiness, metrics and documentation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from allocator.rules.token import READ
from allocator.service.dispatch import Dispatch, json_response
from allocator.service.error_responses import NO_STORE, HttpRefusal
from allocator.service.metric_updates import Watch
from allocator.service.metrics import Figures
from allocator.service.openapi import ASSETS, PAGE, POLICY, START, asset
from allocator.service.rate_limits import Gate

FIGURES_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def routes(description: dict[str, Any], dispatch: Dispatch, watch: Watch, figures: Figures) -> list[BaseRoute]:
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

    def fixed(body: bytes, kind: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return Response(body, 200, {"content-security-policy": POLICY}, kind)

        return answer

    guarded = dispatch.guarded
    return [
        Route("/healthz", guarded(healthy)),
        Route("/readyz", guarded(ready)),
        Route("/metrics", guarded(metrics)),
        Route("/openapi.json", guarded(fixed(json.dumps(description).encode(), "application/json"))),
        Route("/docs", guarded(fixed(PAGE, "text/html"))),
        Route("/docs/start.js", guarded(fixed(START, "text/javascript"))),
        *(Route(f"/docs/{name}", guarded(fixed(asset(name), kind))) for name, kind in ASSETS.items()),
    ]


async def to_docs(request: Request) -> Response:
    """Answer / without a console, or for a client that accepts JSON only."""
    return RedirectResponse("/docs")
