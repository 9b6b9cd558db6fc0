"""The pages that show something, by GET: none of them changes anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allocator.doctor import examine
from allocator.errors import InvalidId, InvalidSetting
from allocator.generators.inspect_id import inspect_id
from allocator.rules.findings import Finding
from allocator.rules.token import ADMINISTER, READ
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_tag
from allocator.schemes.readings import Inspection
from allocator.service.console.bit_drawing import bands
from allocator.service.console.board import Asked, Board
from allocator.service.console.cached import Cached
from allocator.service.console.fleet_page import State, is_leased, look_at
from allocator.service.console.frames import Frames
from allocator.service.console.pulse import ALL
from allocator.service.console.tag_table import SORTS
from allocator.service.refusal_log import NO_STORE
from allocator.service.settings import ServeSettings

QUICK = 5.0
"""Seconds for each question of the doctor's, and to each shard."""
FLEET_FOR, FINDINGS_FOR, AT_MOST_EACH = 10.0, 60.0, 5.0
"""Seconds for which what was found stays; the last where somebody wants to look again."""
MAX_ID_TEXT = 100


class Views:
    def __init__(self, frames: Frames, board: Board, settings: ServeSettings) -> None:
        self._frames = frames
        self._board = board
        self._urls, self._hosts = list(settings.urls), settings.shard_hosts
        self.background = Background()
        """Threads that keep no process from ending, and no claim waiting."""
        self._fleet: Cached[State] = Cached(self._look, FLEET_FOR)
        self.findings: Cached[list[Finding]] = Cached(self._examine, FINDINGS_FOR)

    async def _look(self) -> State:
        return await asyncio.wrap_future(self.background.submit(look_at, self._urls, QUICK, self._hosts))

    async def _examine(self) -> list[Finding]:
        return await asyncio.wrap_future(self.background.submit(examine, self._urls, timeout=QUICK))

    async def tags(self, request: Request) -> Response:
        visitor = await self._frames.visitor(request)
        visitor.grant.check(READ, None)
        asked = asked_of(request.query_params)
        listing, held = await self._board.listing(visitor, asked)
        template = "tags_live.html" if is_part(request) else "tags.html"
        about: dict[str, Any] = {"asked": asked, "listing": listing, "held": held, "workers": self._board.workers}
        about["is_part"] = is_part(request)
        about["address"] = address_of(request)
        return self._frames.show(request, visitor, template, **about)

    async def tag(self, request: Request) -> Response:
        visitor = await self._frames.visitor(request)
        name = check_tag(request.path_params["tag"])
        visitor.check_sees(name)
        row, error = await self._board.row(name)
        template = "tag_live.html" if is_part(request) else "tag.html"
        about: dict[str, Any] = {"row": row, "error": error, "done": request.query_params.get("done", "")}
        may = visitor.may(ADMINISTER, name)
        return self._frames.show(request, visitor, template, **about, may_change=may, refusal="", given={})

    async def series(self, request: Request) -> Response:
        """The history of a tag, or of all ids, for the plot."""
        visitor = await self._frames.visitor(request)
        name = request.query_params.get("tag", ALL)
        if name == ALL:
            visitor.grant.check(READ, None if visitor.sees_all else "*")
        else:
            visitor.grant.check(READ, check_tag(name))
        samples = await self._board.history(name)
        columns = {
            "seconds": [one.second for one in samples],
            "rates": [round(one.rate, 2) for one in samples],
            "refills": [round(one.refill * 1000, 2) or None for one in samples],
        }
        return JSONResponse(columns, headers=dict(NO_STORE) | {"x-content-type-options": "nosniff"})

    async def inspect(self, request: Request) -> Response:
        visitor = await self._frames.visitor(request)
        text = request.query_params.get("id", "").strip()
        found, refusal = read(text)
        template = "inspect_live.html" if is_part(request) else "inspect.html"
        return self._frames.show(
            request, visitor, template, text=text[:MAX_ID_TEXT], found=found, refusal=refusal, bands=bands
        )

    async def fleet(self, request: Request) -> Response:
        visitor = await self._frames.visitor(request)
        visitor.check_operator()
        held = await self._fleet.get()
        leased = partial(is_leased, clock=time.time())
        template = "fleet_live.html" if is_part(request) else "fleet.html"
        return self._frames.show(request, visitor, template, held=held, is_leased=leased, now=time.time())

    async def doctor(self, request: Request) -> Response:
        visitor = await self._frames.visitor(request)
        visitor.check_operator()
        held = await self.findings.get()
        template = "doctor_live.html" if is_part(request) else "doctor.html"
        return self._frames.show(request, visitor, template, held=held)


def is_part(request: Request) -> bool:
    """Whether a part of a page is wanted, by one that is shown."""
    return "hx-request" in request.headers


def address_of(request: Request) -> str:
    """As the browser calls us; taken as it is, since parsing a `Host` that is none may fail."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}"


def asked_of(query: Mapping[str, Any]) -> Asked:
    sort, page = query.get("sort", ""), query.get("page", "")
    number = int(page) if page.isdecimal() and page.isascii() and len(page) < 9 else 1
    return Asked(query.get("q", "")[:64], sort if sort in SORTS else SORTS[0], number)


def read(text: str) -> tuple[Inspection | None, str]:
    """What an id says, or why it is none."""
    if not text:
        return None, ""
    try:
        return inspect_id(text), ""
    except (InvalidId, InvalidSetting) as error:
        return None, str(error)
