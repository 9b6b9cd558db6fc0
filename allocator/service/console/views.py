"""The pages of the console, with their paths. Pages change tags by POST, and read by GET."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_bytes
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from allocator.database.address import address_of as database_of
from allocator.database.columns.integer_keys import read_keys
from allocator.doctor import examine
from allocator.errors import AccessDenied, AllocatorError, InvalidId, InvalidSetting
from allocator.fleet.discovery import state_of
from allocator.generators.inspect_id import inspect_id
from allocator.rules.findings import Finding
from allocator.rules.key_columns import KeyColumn
from allocator.rules.token import ADMINISTER, READ
from allocator.runtime.thread_pool import Background
from allocator.runtime.waiting import result_async
from allocator.schemes.formats.id_inspection import Inspection
from allocator.schemes.shared.argument_checks import check_tag
from allocator.service.auth import Book
from allocator.service.console.cache import Cache
from allocator.service.console.formatting import bits_of
from allocator.service.console.live_rates import ALL, LiveRates
from allocator.service.console.reads import TIMEOUT, Fleet, read_fleet, read_numbers
from allocator.service.console.rendering import SIGN_IN, STATIC_PREFIX, Pages, redirect, refusal_of
from allocator.service.console.rows import SORTS, Query, key_rows
from allocator.service.console.sign_in import Sessions, SignIn
from allocator.service.console.tag_data import TagData
from allocator.service.dispatch import route_of
from allocator.service.error_responses import NO_STORE, Refusals
from allocator.service.log_config import caller_of
from allocator.service.metric_updates import Watch
from allocator.service.metrics import Figures
from allocator.service.pages import to_description
from allocator.service.parameters import read_fields
from allocator.service.rate_limits import Gate
from allocator.service.routes import SETTINGS
from allocator.service.served_tags import ServedTags
from allocator.service.settings import ServeSettings

P = ParamSpec("P")
T = TypeVar("T")

FLEET_SECONDS, KEYS_SECONDS, FINDINGS_SECONDS, EXAMINE_EACH = 10.0, 60.0, 60.0, 5.0
"""Seconds that results stay in the cache; the last one for the button of the doctor's page."""
MAX_ID_TEXT = 100


class Console:
    """The console of one worker. `run` updates the rates until cancelled."""

    def __init__(
        self,
        settings: ServeSettings,
        sequences: ServedTags,
        book: Book,
        watch: Watch,
        metrics: Figures,
        refusals: Refusals,
    ) -> None:
        rates = LiveRates(metrics, is_alone=settings.workers == 1)
        self.run = rates.run
        self._settings = settings
        self._lead = database_of(settings.urls[0])
        self._sequences = sequences
        self._watch = watch
        self._pages = Pages(book, refusals)
        self._sign_in = SignIn(book, Sessions(settings.console_key or token_bytes(32)), self._pages)
        self._tags = TagData(sequences, rates, watch)
        self._background = Background()
        """Own threads, so that claims need not wait and the process can end."""
        examined = partial(self._on_thread, examine, settings.urls, timeout=TIMEOUT)
        self._fleet: Cache[Fleet] = Cache(partial(self._on_thread, read_fleet, settings), FLEET_SECONDS)
        self._keys: Cache[list[KeyColumn]] = Cache(partial(self._on_thread, read_keys, self._lead), KEYS_SECONDS)
        self._findings: Cache[list[Finding]] = Cache(examined, FINDINGS_SECONDS)
        self._numbers_gate = Gate("the list of numbers")

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
            route_of("/console/new", guard, GET=self.new, POST=self.create),
            route_of("/console/tags/{tag}", guard, GET=self.tag, POST=self.change),
            route_of("/console/series", guard, GET=self.series),
            route_of("/console/numbers", guard, GET=self.numbers),
            route_of("/console/inspect", guard, GET=self.inspect),
            route_of("/console/fleet", guard, GET=self.fleet),
            route_of("/console/keys", guard, GET=self.keys),
            route_of("/console/doctor", guard, GET=self.doctor, POST=self.examine_again),
            route_of(f"{STATIC_PREFIX}/{{version}}/{{name:path}}", guard, GET=self._pages.static),
        ]

    async def home(self, request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        wants_json = "json" in accepted and "html" not in accepted
        return await (to_description if wants_json else self.tags)(request)

    async def tags(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.grant.check(READ, None)
        query = query_of(request.query_params)
        listing, cached = await self._tags.listing(user, query)
        values: dict[str, Any] = {"query": query, "listing": listing, "cached": cached, "address": address_of(request)}
        return self._pages.render(request, user, "tags", **values)

    async def tag(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        name = check_tag(request.path_params["tag"])
        user.check_sees(name)
        row, error = await self._tags.row(name)
        values: dict[str, Any] = {"row": row, "error": error, "may_change": user.token.may(ADMINISTER, name)}
        done = request.query_params.get("done", "")
        return self._pages.render(request, user, "tag", **values, done=done, refusal="", form={})

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

    async def new(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        if not user.may_create:
            raise AccessDenied("this token may not administer")
        return self._pages.render(request, user, "new", refusal="", form={})

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

    def _show_tag(self, name: str, done: str) -> Response:
        self._tags.tags.invalidate()
        return redirect(f"/console/tags/{name}?done={done}")

    async def series(self, request: Request) -> Response:
        """The history of a tag, or of all ids, for the plot, as JSON."""
        user = await self._sign_in.user(request)
        name = request.query_params.get("tag", ALL)
        if name == ALL:
            user.grant.check(READ, None if user.sees_all else "*")
        else:
            user.grant.check(READ, check_tag(name))
        samples = await self._tags.samples(name)
        columns = {
            "seconds": [one.second for one in samples],
            "rates": [round(one.rate, 2) for one in samples],
            "refills": [round(one.refill * 1000, 2) or None for one in samples],
        }
        return JSONResponse(columns, headers=dict(NO_STORE) | {"x-content-type-options": "nosniff"})

    async def numbers(self, request: Request) -> Response:
        """The newest number of each scope and period. Scopes are no tags: a token for some tags sees none."""
        user = await self._sign_in.user(request)
        user.grant.check(READ, None if user.sees_all else "*")
        query = query_of(request.query_params)
        read = partial(self._on_thread, read_numbers, self._settings, query)
        return self._pages.render(request, user, "numbers", query=query, numbered=await self._numbers_gate.run(read))

    async def inspect(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        text = request.query_params.get("id", "").strip()
        inspection, refusal = inspect(text)
        values: dict[str, Any] = {"text": text[:MAX_ID_TEXT], "inspection": inspection, "refusal": refusal}
        return self._pages.render(request, user, "inspect", **values, bits_of=bits_of)

    async def fleet(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.check_operator()
        cached = await self._fleet.get()
        return self._pages.render(request, user, "fleet", cached=cached, now=time.time(), state_of=state_of)

    async def keys(self, request: Request) -> Response:
        """The integer keys of other tables in the first database."""
        user = await self._sign_in.user(request)
        user.check_operator()
        cached = await self._keys.get()
        rows = key_rows(cached.value or (), self._watch.days_of_keys)
        return self._pages.render(request, user, "keys", cached=cached, rows=rows, where=self._lead.shown)

    async def doctor(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.check_operator()
        return self._pages.render(request, user, "doctor", cached=await self._findings.get())

    async def examine_again(self, request: Request) -> Response:
        user, _ = await self._sign_in.form(request)
        user.check_operator()
        await self._findings.get(lifetime=EXAMINE_EACH)
        return redirect("/console/doctor")


def address_of(request: Request) -> str:
    """Our address in the browser; not by `request.url`, which fails on a malformed `Host`."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}"


def query_of(query: Mapping[str, Any]) -> Query:
    sort, page = query.get("sort", ""), query.get("page", "")
    number = int(page) if page.isdecimal() and page.isascii() and len(page) < 9 else 1
    return Query(query.get("q", "")[:64], sort if sort in SORTS else SORTS[0], number)


def settings_of(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the user filled in or changed. Others stay as they are, even if somebody else changed them."""
    names = [field.name for field in SETTINGS if form.get(field.name)]
    return read_fields({name: form[name] for name in names if form[name] != form.get(f"was_{name}")}, SETTINGS)


def inspect(text: str) -> tuple[Inspection | None, str]:
    """Inspect an id; return the result, or the reason why it is none."""
    if not text:
        return None, ""
    try:
        return inspect_id(text), ""
    except (InvalidId, InvalidSetting) as error:
        return None, str(error)
