"""Renders pages with their headers, each once for all who look at it, and error pages; serves the static files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import allocator
from allocator.errors import AllocatorError
from allocator.service.auth import Principal, TokenCache
from allocator.service.console import figures
from allocator.service.console.access import CHALLENGE, is_operator, is_private
from allocator.service.dispatch import Endpoint, headers_of
from allocator.service.error_responses import NO_STORE, ErrorReporter, Unauthorized, detail_of

if TYPE_CHECKING:
    from starlette.requests import Request

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


class Pages:
    def __init__(self, token_cache: TokenCache, error_reporter: ErrorReporter) -> None:
        self._token_cache = token_cache
        self._error_reporter = error_reporter
        self.static = Mount(STATIC_PREFIX, StaticFiles(directory=STATIC))
        jinja = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
        jinja.trim_blocks = jinja.lstrip_blocks = True
        jinja.globals |= {"asset": asset_url, "show": figures, "when": format_time, "version": allocator.__version__}
        # Compile now, so that no request waits for it.
        self._templates = {name: jinja.get_template(name) for name in jinja.list_templates()}
        self._kept: dict[Any, str] = {}

    def forget(self) -> None:
        """Render all pages anew."""
        self._kept.clear()

    async def show(self, request: Request, principal: Principal, page: str, version: Any, values: Values) -> Response:
        """Answer with a page. It is rendered with `values` if this token was shown no page of this version yet."""
        token = principal.token
        key = (request.scope["path"], token.number, version)
        await principal.take_turn()
        text = self._kept.get(key)
        if text is None:
            if len(self._kept) >= MAX_KEPT:
                self.forget()
            about = {"token": token, "is_operator": is_operator(token), "refresh": REFRESH}
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


def format_time(moment: datetime | float) -> str:
    """Format a time; a number is seconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
