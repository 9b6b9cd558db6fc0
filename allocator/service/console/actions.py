"""What is changed, by POST: tags are made and set, and the doctor is asked anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allocator.errors import AccessDenied, AllocatorError, InvalidSetting
from allocator.rules.token import ADMINISTER
from allocator.schemes.checks import check_tag
from allocator.service.caller import caller_of
from allocator.service.console.board import Board
from allocator.service.console.frames import Frames, refusal_of
from allocator.service.console.screen import HEADERS
from allocator.service.console.views import AT_MOST_EACH, Views
from allocator.service.console.visitors import Visitors
from allocator.service.forms import MAX_FORM, read_fields
from allocator.service.handlers import body_within
from allocator.service.routes import SETTINGS
from allocator.service.sequences import Sequences

NAMES = tuple(field.name for field in SETTINGS)
MAX_FIELDS = 30


class Changes:
    def __init__(self, frames: Frames, visitors: Visitors, board: Board, sequences: Sequences, views: Views) -> None:
        self._frames = frames
        self._visitors = visitors
        self._board = board
        self._sequences = sequences
        self._views = views

    async def blank(self, request: Request) -> Response:
        """The form of a new tag."""
        visitor = await self._frames.visitor(request)
        if not visitor.may_create:
            raise AccessDenied("this token may not administer")
        return self._frames.show(request, visitor, "new.html", refusal="", given={})

    async def create(self, request: Request) -> Response:
        form = await form_of(request)
        visitor = await self._visitors.check_change(request, form)
        try:
            name = check_tag(form.get("tag", ""))
            visitor.grant.check(ADMINISTER, name)
            await self._sequences.put(name, settings_of(form), caller_of(request.scope), new=True, old=False)
        except AllocatorError as error:
            refusal, status = refusal_of(error)
            return self._frames.show(request, visitor, "new.html", status, refusal=refusal, given=form)
        return self._done(name, "created")

    async def change(self, request: Request) -> Response:
        form = await form_of(request)
        visitor = await self._visitors.check_change(request, form)
        name = check_tag(request.path_params["tag"])
        visitor.grant.check(ADMINISTER, name)
        try:
            changed = settings_of(form)
            if changed:
                await self._sequences.put(name, changed, caller_of(request.scope), new=False, old=True)
        except AllocatorError as error:
            refusal, status = refusal_of(error)
            row, away = await self._board.row(name)
            about = {"row": row, "error": away, "done": "", "may_change": True, "refusal": refusal, "given": form}
            return self._frames.show(request, visitor, "tag.html", status, **about)
        return self._done(name, "changed" if changed else "unchanged")

    def _done(self, name: str, how: str) -> Response:
        self._board.tags.forget()
        return see(f"/console/tags/{name}?done={how}")

    async def look_again(self, request: Request) -> Response:
        """Ask the doctor anew: it looks, and changes nothing, but takes its time."""
        visitor = await self._visitors.check_change(request, await form_of(request))
        visitor.check_operator()
        await self._views.findings.get(within=AT_MOST_EACH)
        return see("/console/doctor")


def see(path: str) -> Response:
    """After a change: what stands there now, so that a reload does not send the form again."""
    return RedirectResponse(path, 303, HEADERS)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; one that stands there twice counts as it came last."""
    raw = await body_within(request, MAX_FORM)
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidSetting(f"a form has at most {MAX_FIELDS} fields") from None
    return {name: value.strip() for name, value in pairs}


def settings_of(form: Mapping[str, str]) -> dict[str, Any]:
    """Those that were filled in, and are not as they were when the form was shown: who else has changed one
    meanwhile keeps what he set."""
    given = {name: form[name] for name in NAMES if form.get(name)}
    return read_fields({name: text for name, text in given.items() if text != form.get(f"was_{name}")}, SETTINGS)
