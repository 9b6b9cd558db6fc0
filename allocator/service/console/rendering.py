"""Renders pages with their headers, static files and error pages.

The path of a static file holds a hash of its content, so browsers cache it for ever. Memory holds all files,
compressed. Files in `static/vendor` belong to other projects, in the versions of `versions.json`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import allocator
from allocator.errors import AllocatorError
from allocator.service.auth import Book
from allocator.service.console import formatting
from allocator.service.dispatch import Endpoint
from allocator.service.error_responses import NO_STORE, HttpRefusal, Refusals, Unauthorized, detail_of, status_of

if TYPE_CHECKING:
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
STATIC_HEADERS = {
    "cache-control": "public, max-age=31536000, immutable",  # the path holds a hash of the content
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    version: str
    media_type: str
    body: bytes
    compressed: bytes


def load_assets() -> dict[str, Asset]:
    """Load the static files, by their paths in `static`."""
    assets = {}
    for path in (one for one in STATIC.rglob("*") if one.suffix in MEDIA_TYPES):
        body = path.read_bytes()
        version = sha256(body).hexdigest()[:12]
        asset = Asset(version, MEDIA_TYPES[path.suffix], body, gzip.compress(body, mtime=0))
        assets[path.relative_to(STATIC).as_posix()] = asset
    return assets


class Pages:
    def __init__(self, book: Book, refusals: Refusals) -> None:
        self._book = book
        self._refusals = refusals
        self._assets = load_assets()
        jinja = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        jinja.globals |= {"asset": self._asset_url, "words": formatting, "when": format_time}
        jinja.globals["version"] = allocator.__version__
        # Compile now, so that no request waits for it.
        self._templates = {name: jinja.get_template(name) for name in jinja.list_templates()}

    def render(self, request: Request, user: User | None, page: str, status: int = 200, **values: Any) -> Response:
        """Render a page; for htmx only its live part, if it has one."""
        part = self._templates.get(f"{page}_live.html") if "hx-request" in request.headers else None
        values |= {"user": user, "path": request.scope["path"], "is_away": self._book.failure is not None}
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
        status, headers, _ = self._refusals.report(error, request.scope)
        values = {"detail": detail_of(error), "request_name": headers["x-request-id"]}
        answer = self.render(request, None, "refused", status, **values)
        for name in ("retry-after", "x-request-id", "connection"):
            if name in headers:
                answer.headers[name] = headers[name]
        return answer

    def _asset_url(self, name: str) -> str:
        return f"{STATIC_PREFIX}/{self._assets[name].version}/{name}"

    async def static(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None or asset.version != request.path_params["version"]:
            raise HttpRefusal(404, "there is no such file")
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = STATIC_HEADERS | {"content-encoding": "gzip"}
            return Response(asset.compressed, 200, headers, asset.media_type)
        return Response(asset.body, 200, STATIC_HEADERS, asset.media_type)


def redirect(path: str) -> Response:
    """Redirect with 303, so that a reload does not submit the form again."""
    return RedirectResponse(path, 303, HEADERS)


def refusal_of(error: AllocatorError) -> tuple[str, int]:
    """The message for a form, and the status of its page. Raises errors that other input cannot solve."""
    status = status_of(error)
    if status >= 500 or isinstance(error, HttpRefusal | Unauthorized):
        raise error
    return detail_of(error), status


def format_time(moment: datetime | float) -> str:
    """Format a time; a number is seconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
