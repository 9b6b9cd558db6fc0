"""Renders pages with their headers, static files and error pages.

Files in `static/vendor` belong to other projects, in the versions of `versions.json`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import allocator
from allocator.errors import AllocatorError
from allocator.service.auth import TokenCache
from allocator.service.console import formatting
from allocator.service.dispatch import Endpoint
from allocator.service.error_responses import NO_STORE, ErrorReporter, Unauthorized, detail_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from allocator.service.console.sign_in import User

SIGN_IN = "/console/sign-in"
TEMPLATES, STATIC = (Path(__file__).parent / name for name in ("templates", "static"))

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = NO_STORE | {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send forms with Origin: null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "vary": "cookie, hx-request",
}

STATIC_PREFIX = "/console/static"


class Compressed(GZipMiddleware):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hide that the server sends files by their path: it would send them as they are."""
        await super().__call__({**scope, "extensions": {}}, receive, send)


class Pages:
    def __init__(self, token_cache: TokenCache, error_reporter: ErrorReporter) -> None:
        self._token_cache = token_cache
        self._error_reporter = error_reporter
        self.static = Mount(STATIC_PREFIX, Compressed(StaticFiles(directory=STATIC)))
        jinja = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        jinja.globals |= {"asset": asset_url, "words": formatting, "when": format_time}
        jinja.globals["version"] = allocator.__version__
        # Compile now, so that no request waits for it.
        self._templates = {name: jinja.get_template(name) for name in jinja.list_templates()}

    def render(self, request: Request, user: User | None, page: str, status: int = 200, **values: Any) -> Response:
        """Render a page; for htmx only its live part, if it has one."""
        part = self._templates.get(f"{page}_live.html") if "hx-request" in request.headers else None
        values |= {"user": user, "path": request.scope["path"], "is_away": self._token_cache.failure is not None}
        text = (part or self._templates[f"{page}.html"]).render(values, is_part=part is not None)
        return HTMLResponse(text, status, dict(HEADERS))

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint: errors become pages, or a redirect to the sign-in page."""

        async def run(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Unauthorized as error:
                return self._to_sign_in(request) if request.method == "GET" else self._refuse(request, error)
            except AllocatorError as error:
                return self._refuse(request, error)

        return run

    def _to_sign_in(self, request: Request) -> Response:
        if "hx-request" in request.headers:
            return Response(status_code=401, headers=HEADERS | {"hx-redirect": SIGN_IN})
        query = request.scope["query_string"].decode("latin-1")
        here = quote(request.scope["path"] + (f"?{query}" if query else ""), safe="")
        return redirect(SIGN_IN if here == "%2F" else f"{SIGN_IN}?next={here}")

    def _refuse(self, request: Request, error: AllocatorError) -> Response:
        status, headers, _ = self._error_reporter.report(error, request.scope)
        values = {"detail": detail_of(error), "request_name": headers["x-request-id"]}
        answer = self.render(request, None, "refused", status, **values)
        for name in ("retry-after", "x-request-id", "connection"):
            if name in headers:
                answer.headers[name] = headers[name]
        return answer


def asset_url(name: str) -> str:
    """The URL of a static file, by which browsers ask again after an update."""
    return f"{STATIC_PREFIX}/{name}?{allocator.__version__}"


def redirect(path: str) -> Response:
    """Redirect with 303, so that a reload does not submit the form again."""
    return RedirectResponse(path, 303, HEADERS)


def format_time(moment: datetime | float) -> str:
    """Format a time; a number is seconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
