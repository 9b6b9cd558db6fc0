"""The parts of one worker, its start and its shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

import allocator
from allocator.backend import fleet_of
from allocator.runtime.thread_pool import THREADS, Background
from allocator.service import pages, routes
from allocator.service.auth import REFRESH, SHARE, Book
from allocator.service.compat import leaf, tinyid
from allocator.service.console.views import Console
from allocator.service.dispatch import Dispatch
from allocator.service.error_responses import Refusals
from allocator.service.handlers import Ids
from allocator.service.hot_path import Front
from allocator.service.id_sources import Sources
from allocator.service.metric_updates import Watch
from allocator.service.metrics import Figures, end_worker
from allocator.service.served_tags import Newcomers, ServedTags
from allocator.service.settings import LEAF, SERVED, TINYID, ServeSettings
from allocator.service.token_administration import Tokens
from allocator.service_allocator import ServiceAllocator
from allocator.telemetry.observed import timed

MAX_START_DELAY = 60.0
"""Seconds that a replacement worker waits for the database before it accepts connections."""


def application(settings: ServeSettings) -> ASGIApp:
    """The ASGI application of one worker."""
    figures = Figures()
    observe = partial(timed, report=figures.claimed)
    ids = ServiceAllocator(settings.urls, settings.shard_hosts, settings.timeout, observe)
    apart = Background()
    tokens_at = fleet_of(list(settings.urls), apart, timeout=settings.timeout, shard_hosts=settings.shard_hosts)
    tokens = Tokens(tokens_at.lead)

    def check_database() -> None:
        """Raise an error unless the database has answered a claim just now, or answers."""
        if monotonic() - figures.claimed_at > REFRESH:
            tokens.ping()

    share = min(SHARE * len(settings.urls), THREADS - 2)
    book = Book(tokens.state, settings.is_open, settings.compat_token, check_database, share)
    sources, newcomers = Sources(ids), Newcomers(settings.max_tags, settings.timeout)
    service = Ids(ids, sources, ServedTags(ids, sources, settings.create, newcomers))
    watch = Watch(service, book, figures)
    refusals = Refusals(figures.refused)
    dispatch = Dispatch(book, refusals)
    console = Console(settings, service.sequences, book, watch, figures, refusals) if settings.console else None

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        # Before the wait for the database, which ends once `keep_fresh` has read the tokens.
        tasks = [asyncio.create_task(one) for one in (book.keep_fresh(), watch.run())]
        await wait_for_database(book, settings.folder)
        yield
        for task in tasks:
            task.cancel()
        if console:
            console.close()
        with suppress(Exception):
            watch.look()  # counts the ids issued since the last second
        end_worker()
        await ids.close()
        apart.close(0.0)
        tokens_at.close()

    home = console.routes() if console else [Route("/", pages.to_description)]
    framework = FastAPI(
        title="allocator",
        version=allocator.__version__,
        description=routes.ABOUT,
        openapi_tags=[{"name": name, "description": about} for name, about in routes.GROUPS],
        openapi_url=None,
        routes=home + other_routes(service, dispatch, book, watch, figures, settings.compat),
        exception_handlers={HTTPException: dispatch.of_framework, Exception: dispatch.of_framework},
        generate_unique_id_function=lambda route: route.name,
        lifespan=life,
    )
    framework.state.dispatch = dispatch
    routes.add_routes(framework, service)
    framework.router.redirect_slashes = False  # a client may send a redirected POST twice
    return Front(framework, book, refusals)


async def wait_for_database(book: Book, folder: str) -> None:
    """Wait for the database in a replacement worker, before it takes connections from workers with ids in memory.

    The first workers of a service start at once, so that /readyz answers.
    """
    if not folder:  # on another server
        return
    end, served = monotonic() + MAX_START_DELAY, Path(folder, SERVED)
    while served.exists() and not book.loaded and monotonic() < end:
        await asyncio.sleep(0.05)
    served.touch()


def other_routes(
    service: Ids, dispatch: Dispatch, book: Book, watch: Watch, figures: Figures, compat: tuple[str, ...]
) -> list[BaseRoute]:
    made = pages.routes(dispatch, watch, figures)
    if LEAF in compat:
        made += leaf.routes(service, dispatch, book)
    if TINYID in compat:
        made += tinyid.routes(service, dispatch, book)
    return made
