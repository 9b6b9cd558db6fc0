"""Changes by POST: create and change tags, run the doctor again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from allocator.errors import AllocatorError
from allocator.rules.token import ADMINISTER
from allocator.schemes.checks import check_tag
from allocator.service.console.rendering import Pages, redirect, refusal_of
from allocator.service.console.sign_in import SignIn
from allocator.service.console.tag_data import TagData
from allocator.service.console.views import Views
from allocator.service.log_config import caller_of
from allocator.service.parameters import read_fields
from allocator.service.routes import SETTINGS
from allocator.service.sequences import Sequences


class Actions:
    def __init__(self, sign_in: SignIn, pages: Pages, tags: TagData, sequences: Sequences, views: Views) -> None:
        self._sign_in = sign_in
        self._pages = pages
        self._tags = tags
        self._sequences = sequences
        self._views = views

    async def create(self, request: Request) -> Response:
        user, form = await self._sign_in.form(request)
        try:
            name = check_tag(form.get("tag", ""))
            user.grant.check(ADMINISTER, name)
            await self._sequences.put(name, settings_of(form), caller_of(request.scope), new=True, old=False)
        except AllocatorError as error:
            refusal, status = refusal_of(error)
            return self._pages.render(request, user, "new", status, refusal=refusal, form=form)
        return self._show_tag(name, "created")

    async def change(self, request: Request) -> Response:
        user, form = await self._sign_in.form(request)
        name = check_tag(request.path_params["tag"])
        user.grant.check(ADMINISTER, name)
        try:
            changes = settings_of(form)
            if changes:
                await self._sequences.put(name, changes, caller_of(request.scope), new=False, old=True)
        except AllocatorError as error:
            refusal, status = refusal_of(error)
            row, away = await self._tags.row(name)
            values = {"row": row, "error": away, "done": "", "may_change": True, "refusal": refusal, "form": form}
            return self._pages.render(request, user, "tag", status, **values)
        return self._show_tag(name, "changed" if changes else "unchanged")

    def _show_tag(self, name: str, done: str) -> Response:
        self._tags.tags.invalidate()
        return redirect(f"/console/tags/{name}?done={done}")

    async def examine_again(self, request: Request) -> Response:
        user, _ = await self._sign_in.form(request)
        user.check_operator()
        await self._views.examine_again()
        return redirect("/console/doctor")


def settings_of(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the user filled in or changed. Others stay as they are, even if somebody else changed them."""
    names = [field.name for field in SETTINGS if form.get(field.name)]
    return read_fields({name: form[name] for name in names if form[name] != form.get(f"was_{name}")}, SETTINGS)
