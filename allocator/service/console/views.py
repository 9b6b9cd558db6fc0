"""The pages of the console, with their paths. They only read; what changes is the session of who signs in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_bytes
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from allocator.doctor import examine
from allocator.fleet.discovery import state_of
from allocator.rules.findings import Finding
from allocator.rules.token import READ
from allocator.runtime.thread_pool import Background
from allocator.runtime.waiting import result_async
from allocator.schemes.shared.argument_checks import check_tag
from allocator.service.auth import TokenCache
from allocator.service.console.cache import Cache
from allocator.service.console.fleet_status import TIMEOUT, FleetStatus, read_fleet
from allocator.service.console.rendering import SIGN_IN, Pages
from allocator.service.console.rows import SORTS, Query
from allocator.service.console.sign_in import Sessions, SignIn
from allocator.service.console.tag_data import TagData
from allocator.service.console.tag_metrics import ALL
from allocator.service.dispatch import route_of
from allocator.service.error_responses import NO_STORE, ErrorReporter
from allocator.service.metric_updates import MetricsUpdater
from allocator.service.metrics import Metrics
from allocator.service.monitoring import to_description
from allocator.service.served_tags import ServedTags
from allocator.service.settings import ServeSettings

P = ParamSpec("P")
T = TypeVar("T")

FLEET_SECONDS, FINDINGS_SECONDS = 10.0, 60.0
"""Seconds that results stay in the cache."""


class Console:
    """The console of one process."""

    def __init__(
        self,
        settings: ServeSettings,
        tags: ServedTags,
        token_cache: TokenCache,
        updater: MetricsUpdater,
        metrics: Metrics,
        error_reporter: ErrorReporter,
    ) -> None:
        self._pages = Pages(token_cache, error_reporter)
        self._sign_in = SignIn(token_cache, Sessions(token_bytes(32)), self._pages)
        self._tags = TagData(tags, metrics, updater)
        self._background = Background()
        """Own threads, so that claims need not wait and the process can end."""
        examined = partial(self._on_thread, examine, settings.urls, timeout=TIMEOUT)
        self._fleet: Cache[FleetStatus] = Cache(partial(self._on_thread, read_fleet, settings), FLEET_SECONDS)
        self._findings: Cache[list[Finding]] = Cache(examined, FINDINGS_SECONDS)

    async def _on_thread(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await result_async(self._background.submit(read, *args, **kwargs))

    def close(self) -> None:
        self._background.close(0.0)

    def routes(self) -> list[BaseRoute]:
        guard, sign_in = self._pages.guarded, self._sign_in
        return [
            route_of("/", guard, GET=self.home),
            route_of(SIGN_IN, guard, GET=sign_in.show, POST=sign_in.sign_in),
            route_of("/console/sign-out", guard, POST=sign_in.sign_out),
            route_of("/console/tags/{tag}", guard, GET=self.tag),
            route_of("/console/totals", guard, GET=self.totals),
            route_of("/console/fleet", guard, GET=self.fleet),
            route_of("/console/doctor", guard, GET=self.doctor),
            self._pages.static,
        ]

    async def home(self, request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        wants_json = "json" in accepted and "html" not in accepted
        return await (to_description if wants_json else self.tags)(request)

    async def tags(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.principal.check(READ, None)
        query = query_of(request.query_params)
        listing, cached = await self._tags.listing(user, query)
        values: dict[str, Any] = {"query": query, "listing": listing, "cached": cached, "address": address_of(request)}
        return self._pages.render(request, user, "tags", **values)

    async def tag(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        name = check_tag(request.path_params["tag"])
        user.check_sees(name)
        row, error = await self._tags.row(name)
        return self._pages.render(request, user, "tag", row=row, error=error)

    async def totals(self, request: Request) -> Response:
        """The ids so far of a tag, or of all schemes, and its last refill, for the plot, as JSON."""
        user = await self._sign_in.user(request)
        name = request.query_params.get("tag", ALL)
        if name == ALL:
            user.principal.check(READ, None if user.sees_all else "*")
        else:
            user.principal.check(READ, check_tag(name))
        at, totals, _ = await self._tags.reading()
        refill = totals.refill.get(name) if name else max(totals.refill.values(), default=None)
        found = {"at": at, "ids": totals.ids.get(name, 0.0), "refill": refill}
        return JSONResponse(found, headers=dict(NO_STORE) | {"x-content-type-options": "nosniff"})

    async def fleet(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.check_operator()
        cached = await self._fleet.get()
        return self._pages.render(request, user, "fleet", cached=cached, now=time.time(), state_of=state_of)

    async def doctor(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.check_operator()
        return self._pages.render(request, user, "doctor", cached=await self._findings.get())


def address_of(request: Request) -> str:
    """Our address in the browser; not by `request.url`, which fails on a malformed `Host`."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}"


def query_of(query: Mapping[str, Any]) -> Query:
    sort, page = query.get("sort", ""), query.get("page", "")
    number = int(page) if page.isdecimal() and page.isascii() and len(page) < 9 else 1
    return Query(query.get("q", "")[:64], sort if sort in SORTS else SORTS[0], number)
