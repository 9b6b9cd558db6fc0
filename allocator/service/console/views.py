"""The pages of the console, with their paths: what they show, and how they are rendered, each once for all who look.

They only read, and from memory: no page waits for a database. Errors are pages too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import allocator
from allocator.errors import AllocatorError
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.tag import Tag
from allocator.schemes.token import READ, Token
from allocator.service.auth import Principal, TokenCache
from allocator.service.console import figures
from allocator.service.console.access import CHALLENGE, is_private, principal_of, sees_all
from allocator.service.console.history import ALL, EVERY, History
from allocator.service.dispatch import Endpoint, headers_of
from allocator.service.error_responses import NO_STORE, ErrorReporter, HttpRefusal, Unauthorized, detail_of
from allocator.service.metrics import Metrics
from allocator.service.monitoring import MAX_SHOWN, MetricsUpdater, repeat
from allocator.service.routes import IdHandlers
from allocator.service.served_ids import IDLE

Values = Callable[[], dict[str, Any]]

TEMPLATES, STATIC = (Path(__file__).parent / name for name in ("templates", "static"))
STATIC_PREFIX = "/console/static"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = NO_STORE | {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
REFRESH = 5
"""Seconds after which a page in a browser asks for its newer self."""
MAX_KEPT = 64
"""Rendered pages that are kept until the next sample."""
ROWS = 100
"""Tags of the list. `allocator tags list` has them all."""


class Row(NamedTuple):
    """The figures of a tag: ids per second, ids in memory, the seconds that these last, those until the tag ends.

    `tag` is None while the databases have not told its settings."""

    name: str
    tag: Tag | None
    rate: float
    held: int
    lasting: float
    left: float


class Console:
    """The console of one process."""

    def __init__(
        self,
        handlers: IdHandlers,
        updater: MetricsUpdater,
        token_cache: TokenCache,
        metrics: Metrics,
        error_reporter: ErrorReporter,
    ) -> None:
        self._handlers, self._updater, self._token_cache = handlers, updater, token_cache
        self._metrics = metrics
        self._pages = Pages(token_cache, error_reporter)
        self._history = History(time.monotonic())

    async def run(self) -> None:
        """Sample what is drawn, for the plots of all pages, until cancelled."""
        await repeat("sample the ids", self._sample, EVERY)

    async def _sample(self) -> None:
        self._history.record(time.monotonic(), totals_of(self._handlers), self._metrics.take_refills())
        self._pages.forget()

    def routes(self) -> list[BaseRoute]:
        guard = self._pages.guarded
        return [
            Route("/", guard(self.tags)),
            Route("/console/tags/{tag}", guard(self.tag)),
            self._pages.static,
        ]

    async def _principal(self, request: Request) -> Principal:
        return await principal_of(self._token_cache, request.scope, headers_of(request))

    async def tags(self, request: Request) -> Response:
        principal = await self._principal(request)
        principal.check(READ, None)
        return await self._of_tags(request, principal, "tags", lambda: self._list(principal.token))

    def _list(self, token: Token) -> dict[str, Any]:
        """The busiest tags of the last ten minutes, then others in use, then the rest by name."""
        known = self._updater.tags or {}
        names = dict.fromkeys([*self._history.busiest, *self._handlers.sources.tags, *known])
        seen = list(names) if sees_all(token) else [name for name in names if token.may(READ, name)]
        rows = [self._row(name) for name in seen[:ROWS]]
        rate = sum(self._history.rates.get(name, 0.0) for name in ([ALL] if sees_all(token) else seen))
        shortest = min(rows, key=lambda row: row.lasting, default=None)
        found = {"rows": rows, "found": len(seen), "is_cut": len(known) == MAX_SHOWN, "rate": rate}
        return found | {"shortest": shortest, "sees_all": sees_all(token)}

    def _row(self, name: str) -> Row:
        tag = (self._updater.tags or {}).get(name)
        source, rate = self._handlers.sources.tags.get(name), self._history.rates.get(name, 0.0)
        held, lasting = (source.supply.held(), source.lasting()) if source else (0, inf)
        lately = self._history.mean(name)
        left = tag.remaining / lately if tag and lately > IDLE else inf
        return Row(name, tag, rate, held, lasting, left)

    async def tag(self, request: Request) -> Response:
        principal, name = await self._principal(request), check_tag(request.path_params["tag"])
        principal.check(READ, name)
        return await self._of_tags(request, principal, "tag", lambda: {"row": self._known(name)})

    def _known(self, name: str) -> Row:
        """The row of a tag. Nothing is read for it, so that made-up names cost no query."""
        row = self._row(name)
        if row.tag is None and name not in self._handlers.sources.tags:
            unknown = (
                f"tag {name!r} is not in use here, nor was it among the first {MAX_SHOWN} of the last minute; "
                f"see: allocator tags list {name}"
            )
            raise self._refusal() or HttpRefusal(404, unknown)
        return row

    async def _of_tags(self, request: Request, principal: Principal, page: str, values: Values) -> Response:
        error, databases = self._refusal(), self._updater.away
        common = {
            "history": self._history,
            "age": self._updater.age(),
            "away": [number for number, one in enumerate(databases, 1) if one],
            "databases": len(databases),
            "refusal": error and detail_of(error).partition(";")[0],
        }
        return await self._pages.show(request, principal, page, lambda: common | values())

    def _refusal(self) -> AllocatorError | None:
        """Why no database is used, if none is."""
        away = self._updater.away
        return away[0] if away and all(away) else None


def totals_of(handlers: IdHandlers) -> dict[str, int]:
    """Ids given since the start, by tag, and of all schemes."""
    sources = handlers.sources
    found = Counter({name: source.given for name, source in sources.tags.items()}) + Counter(sources.blocks)
    others = sources.meteor.given + sources.snowflake.given + sources.objectid.given + sum(handlers.tickets.values())
    return {**found, ALL: found.total() + others}


class Pages:
    def __init__(self, token_cache: TokenCache, error_reporter: ErrorReporter) -> None:
        self._token_cache = token_cache
        self._error_reporter = error_reporter
        self.static = Mount(STATIC_PREFIX, StaticFiles(directory=STATIC))
        jinja = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
        jinja.trim_blocks = jinja.lstrip_blocks = True
        jinja.globals |= {"asset": asset_url, "show": figures, "version": allocator.__version__}
        # Compile now, so that no request waits for it.
        self._templates = {name: jinja.get_template(name) for name in jinja.list_templates()}
        self._kept: dict[Any, str] = {}

    def forget(self) -> None:
        """Render all pages anew."""
        self._kept.clear()

    async def show(self, request: Request, principal: Principal, page: str, values: Values) -> Response:
        """Answer with a page. It is rendered with `values` if this token was not shown it since the last sample."""
        token = principal.token
        key = (request.scope["path"], token.number)
        await principal.take_turn()
        text = self._kept.get(key)
        if text is None:
            if len(self._kept) >= MAX_KEPT:
                self.forget()
            about = {"token": token, "refresh": REFRESH}
            text = self._kept[key] = self._render(request, page, about | values())
        return HTMLResponse(text, headers=HEADERS)

    def _render(self, request: Request, page: str, values: dict[str, Any]) -> str:
        return self._templates[f"{page}.html"].render(values, path=request.scope["path"])

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint: errors become pages."""

        async def run(request: Request) -> Response:
            try:
                return await endpoint(request)
            except AllocatorError as error:
                return self._refuse(request, error)

        return run

    def _refuse(self, request: Request, error: AllocatorError) -> Response:
        problem = self._error_reporter.response(error, request.scope)
        others = ("content-length", "www-authenticate")
        headers = {name: value for name, value in problem.headers.items() if name not in others}
        is_asked = isinstance(error, Unauthorized) and not self._token_cache.is_open
        if is_asked and is_private(request.scope, headers_of(request)):
            headers["www-authenticate"] = CHALLENGE
        values = {"detail": detail_of(error), "is_asked": is_asked, "request_name": headers["x-request-id"]}
        refresh = REFRESH if problem.status_code == 503 else 0
        text = self._render(request, "refused", {"token": None, "refresh": refresh} | values)
        return HTMLResponse(text, problem.status_code, headers | HEADERS)


def asset_url(name: str) -> str:
    """The URL of a static file, by which browsers ask again after an update."""
    return f"{STATIC_PREFIX}/{name}?{allocator.__version__}"
