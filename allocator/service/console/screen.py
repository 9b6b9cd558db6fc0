"""A template, with the headers that every page has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

import allocator
from allocator.service.console import formatting
from allocator.service.console.assets import Assets
from allocator.service.refusal_log import NO_STORE

TEMPLATES = Path(__file__).parent / "templates"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = NO_STORE | {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all, browsers would not say where a form comes from
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "vary": "cookie, hx-request",
}


class Screen:
    def __init__(self, assets: Assets) -> None:
        self._jinja = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.globals |= {"asset": assets.url, "words": formatting, "when": when}
        self._jinja.globals["version"] = allocator.__version__
        for name in self._jinja.list_templates():
            self._jinja.get_template(name)  # compiled and kept, so that no request waits while the first page is made

    def show(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._jinja.get_template(template).render(values), status, dict(HEADERS))


def when(moment: datetime | float) -> str:
    """A time as text; numbers are seconds since 1970."""
    at = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
