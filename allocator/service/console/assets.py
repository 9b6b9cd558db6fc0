"""Scripts and styles, under names that change with what is in them: a browser asks for each once.

They come from the packages of `static/vendor` (their versions are in `versions.json`, each with its licence) and from
here, and are served from memory, compressed once. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from allocator.service.problems import HttpRefusal

STATIC = Path(__file__).parent / "static"
PREFIX = "/console/static"
FOR_EVER = "public, max-age=31536000, immutable"

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FILES = {
    "console.css": "console.css",
    "console.js": "console.js",
    "plot.js": "plot.js",
    "icon.svg": "icon.svg",
    "htmx.js": "vendor/htmx.org/htmx.min.js",
    "uplot.js": "vendor/uplot/uPlot.iife.min.js",
    "uplot.css": "vendor/uplot/uPlot.min.css",
}


@dataclass(frozen=True, slots=True)
class Asset:
    version: str
    kind: str
    body: bytes
    packed: bytes


def loaded(name: str) -> Asset:
    body = (STATIC / FILES[name]).read_bytes()
    version = sha256(body).hexdigest()[:12]
    return Asset(version, KINDS[Path(name).suffix], body, gzip.compress(body, mtime=0))


class Assets:
    def __init__(self) -> None:
        self._known = {name: loaded(name) for name in FILES}

    def url(self, name: str) -> str:
        return f"{PREFIX}/{self._known[name].version}/{name}"

    async def answer(self, request: Request) -> Response:
        found = self._known.get(request.path_params["name"])
        if found is None or found.version != request.path_params["version"]:
            raise HttpRefusal(404, "there is no such file")
        headers = {"cache-control": FOR_EVER, "vary": "accept-encoding", "x-content-type-options": "nosniff"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(found.packed, 200, headers | {"content-encoding": "gzip"}, found.kind)
        return Response(found.body, 200, headers, found.kind)
