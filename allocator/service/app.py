"""The parts of the service, its start and its shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.exceptions import HTTPException

import allocator
from allocator.database.store import Database
from allocator.runtime.threads import THREADS
from allocator.service import monitoring, routes
from allocator.service.auth import REFRESH, SHARE, TokenCache
from allocator.service.compat import of_leaf, of_tinyid
from allocator.service.console.views import Console
from allocator.service.dispatch import Dispatch
from allocator.service.error_responses import ErrorReporter
from allocator.service.hot_path import HotPath
from allocator.service.metrics import Metrics
from allocator.service.served_ids import Sources
from allocator.service.settings import LEAF, TINYID, ServeSettings
from allocator.service.token_administration import Tokens
from allocator.service_allocator import ServiceAllocator


def application(settings: ServeSettings) -> HotPath:
    """The ASGI application."""
    metrics = Metrics()
    ids = ServiceAllocator(settings.urls, settings.timeout, metrics.timed)
    tokens_at = Database(settings.tokens_at, settings.timeout)
    tokens = Tokens(tokens_at)
    share = min(SHARE * len(settings.urls), THREADS - 2)
    token_cache = TokenCache(tokens.state, settings.is_open, share, settings.timeout)
    handlers = routes.IdHandlers(ids, Sources(ids))
    updater = monitoring.MetricsUpdater(handlers, token_cache, metrics)
    error_reporter = ErrorReporter(metrics.refused)
    dispatch = Dispatch(token_cache, error_reporter)
    console = Console(handlers, updater, token_cache, metrics, error_reporter)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        # Before the first request, which may wait in the socket already.
        with suppress(TimeoutError):
            await asyncio.wait_for(token_cache.refresh(), min(settings.timeout, REFRESH))
        tokens_read = monitoring.repeat("refresh the tokens", token_cache.refresh, REFRESH)
        running = [tokens_read, updater.run(), console.run()]
        tasks = [asyncio.create_task(one) for one in running]
        served.has_started.set()
        yield
        for task in tasks:
            task.cancel()
        with suppress(Exception):
            await updater.update()  # counts the ids issued since the last second
        await ids.close()
        tokens_at.close()

    framework = FastAPI(
        title="allocator",
        version=allocator.__version__,
        description=routes.ABOUT,
        openapi_tags=[{"name": name, "description": about} for name, about in routes.GROUPS],
        openapi_url=None,
        redirect_slashes=False,  # a client may send a redirected POST twice
        routes=[
            *monitoring.routes(dispatch, updater, metrics),
            *(of_leaf(handlers, dispatch) if LEAF in settings.compat else []),
            *(of_tinyid(handlers, dispatch, token_cache) if TINYID in settings.compat else []),
            *routes.routes(handlers),
            *console.routes(),
        ],
        exception_handlers={HTTPException: dispatch.of_framework, Exception: dispatch.of_framework},
        lifespan=life,
    )
    framework.state.dispatch, framework.state.description = dispatch, routes.description(framework)
    served = HotPath(framework, token_cache, error_reporter, metrics)
    return served
