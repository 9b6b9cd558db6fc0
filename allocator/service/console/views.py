"""Read-only pages, by GET."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allocator.database.address import address_of as database_of
from allocator.database.questions.integer_keys import read_keys
from allocator.database.store import Database
from allocator.database.verbs import nodes, number_columns
from allocator.database.verbs.number_columns import Counter
from allocator.doctor import examine
from allocator.errors import AccessDenied, AllocatorError, InvalidId, InvalidSetting, SchemaOutOfDate
from allocator.fleet.discovery import Discovery, Found, state_of
from allocator.generators.inspect_id import inspect_id
from allocator.rules.findings import Finding
from allocator.rules.fleet_growth import LEAD
from allocator.rules.hosts import Hosts
from allocator.rules.key_columns import KeyColumn
from allocator.rules.token import ADMINISTER, READ
from allocator.rules.worker_spaces import Space
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_tag
from allocator.schemes.meteor import Node
from allocator.schemes.readings import Inspection
from allocator.schemes.snowflake_workers import Worker
from allocator.service.console.cache import Cache
from allocator.service.console.formatting import bits_of
from allocator.service.console.history import ALL
from allocator.service.console.key_table import rows_of
from allocator.service.console.rendering import Pages
from allocator.service.console.sign_in import SignIn
from allocator.service.console.tag_data import TagData
from allocator.service.console.tag_table import PAGE, SORTS, Page, Query, page_number
from allocator.service.problems import NO_STORE
from allocator.service.rate_limits import Gate
from allocator.service.readiness import Watch
from allocator.service.settings import ServeSettings

TIMEOUT = 5.0
"""Seconds for each query of the doctor, and for each shard."""
FLEET_SECONDS, KEYS_SECONDS, FINDINGS_SECONDS, EXAMINE_EACH = 10.0, 60.0, 60.0, 5.0
"""Seconds that results stay in the cache; the last one for the button of the doctor's page."""
BOUND_WAIT = 0.2
"""Seconds that the page of a tag waits for the columns that it is bound to; it looks again by itself."""
MAX_ID_TEXT = 100
NODES = 100


class Views:
    def __init__(self, sign_in: SignIn, pages: Pages, tags: TagData, watch: Watch, settings: ServeSettings) -> None:
        self._sign_in = sign_in
        self._pages = pages
        self._tags = tags
        self._watch = watch
        self._urls, self._hosts = list(settings.urls), settings.shard_hosts
        self._background = Background()
        """Own threads, so that claims need not wait and the process can end."""
        self._fleet: Cache[Fleet] = Cache(self._read_fleet, FLEET_SECONDS)
        self._bound: Cache[Mapping[str, Sequence[str]]] = Cache(self._read_bound, KEYS_SECONDS)
        self._keys: Cache[list[KeyColumn]] = Cache(self._read_keys, KEYS_SECONDS)
        self._findings: Cache[list[Finding]] = Cache(self._examine, FINDINGS_SECONDS)
        self._numbers_gate = Gate("the list of numbers")

    async def _read_fleet(self) -> Fleet:
        return await asyncio.wrap_future(self._background.submit(read_fleet, self._urls, TIMEOUT, self._hosts))

    async def _read_bound(self) -> Mapping[str, Sequence[str]]:
        return await asyncio.wrap_future(self._background.submit(read_bound, self._urls[0], TIMEOUT, self._hosts))

    async def _read_keys(self) -> list[KeyColumn]:
        return await asyncio.wrap_future(self._background.submit(read_keys, database_of(self._urls[0])))

    async def _examine(self) -> list[Finding]:
        return await asyncio.wrap_future(self._background.submit(examine, self._urls, timeout=TIMEOUT))

    async def _read_numbers(self, query: Query) -> Numbered:
        submitted = self._background.submit(read_numbers, self._urls[0], TIMEOUT, self._hosts, query)
        return await asyncio.wrap_future(submitted)

    def close(self) -> None:
        self._background.close(0.0)

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
        values: dict[str, Any] = {"row": row, "error": error, "may_change": user.may(ADMINISTER, name)}
        bound = (await self._bound.get(BOUND_WAIT)).value or {} if user.is_operator else {}
        values["bound"] = bound.get(name, ())
        done = request.query_params.get("done", "")
        return self._pages.render(request, user, "tag", **values, done=done, refusal="", form={})

    async def numbers(self, request: Request) -> Response:
        """The newest number of each scope and period. Scopes are no tags: a token for some tags sees none."""
        user = await self._sign_in.user(request)
        user.grant.check(READ, None if user.sees_all else "*")
        query = query_of(request.query_params)
        numbered = await self._numbers_gate.run(partial(self._read_numbers, query))
        return self._pages.render(request, user, "numbers", query=query, numbered=numbered)

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

    async def new(self, request: Request) -> Response:
        """The form of a new tag."""
        user = await self._sign_in.user(request)
        if not user.may_create:
            raise AccessDenied("this token may not administer")
        return self._pages.render(request, user, "new", refusal="", form={})

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
        rows, where = rows_of(cached.value or (), self._watch.days_of_keys), database_of(self._urls[0]).shown
        return self._pages.render(request, user, "keys", cached=cached, rows=rows, where=where)

    async def doctor(self, request: Request) -> Response:
        user = await self._sign_in.user(request)
        user.check_operator()
        cached = await self._findings.get()
        return self._pages.render(request, user, "doctor", cached=cached)

    async def examine_again(self) -> None:
        await self._findings.get(lifetime=EXAMINE_EACH)


def address_of(request: Request) -> str:
    """Our address in the browser; not by `request.url`, which fails on a malformed `Host`."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}"


def query_of(query: Mapping[str, Any]) -> Query:
    sort, page = query.get("sort", ""), query.get("page", "")
    number = int(page) if page.isdecimal() and page.isascii() and len(page) < 9 else 1
    return Query(query.get("q", "")[:64], sort if sort in SORTS else SORTS[0], number)


def inspect(text: str) -> tuple[Inspection | None, str]:
    """Inspect an id; return the result, or the reason why it is none."""
    if not text:
        return None, ""
    try:
        return inspect_id(text), ""
    except (InvalidId, InvalidSetting) as error:
        return None, str(error)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The shards as in `allocator shards list`, nodes, workers and spaces, or the error that prevented the read."""

    shards: list[Found]
    nodes: list[Node]
    workers: list[Worker]
    spaces: list[Space]
    error: AllocatorError | None = None


def read_fleet(urls: Sequence[str], timeout: float, shard_hosts: Hosts = ()) -> Fleet:
    """Read the fleet with connections of its own. Blocking."""
    discovery = Discovery([Database(url, timeout, shard_hosts=shard_hosts) for url in urls])
    try:
        shards = discovery.shards()
        lead = next((one.database for one in shards if not one.error and is_lead(one)), None)
        numbered = lead.run(nodes.fetch_newest, NODES) if lead else []
        workers = lead.run(nodes.fetch_workers) if lead else []
        return Fleet(shards, numbered, workers, spaces_in(lead) if lead else [])
    except AllocatorError as error:
        return Fleet([], [], [], [], error)
    finally:
        discovery.close()


def spaces_in(lead: Database) -> list[Space]:
    with suppress(SchemaOutOfDate):  # before revision 0010
        return lead.worker_spaces()
    return []


@dataclass(frozen=True, slots=True)
class Numbered:
    """A page of the counters of numbers, or the error that prevented the read."""

    page: Page
    rows: Sequence[Counter]
    where: str
    error: AllocatorError | None = None


def read_numbers(url: str, timeout: float, shard_hosts: Hosts, query: Query) -> Numbered:
    """Read the counters of one database; applications have theirs beside their rows. Blocking."""
    database = Database(url, timeout, shard_hosts=shard_hosts)
    try:
        found = database.run(number_columns.count_counters, query.text)
        number, pages = page_number(query.page, found)
        rows = database.run(number_columns.fetch_page, query.text, (number - 1) * PAGE, PAGE)
        return Numbered(Page((), number, pages, found, found), rows, database.address.shown)
    except AllocatorError as error:
        return Numbered(Page((), 1, 1, 0, 0), (), database.address.shown, error)
    finally:
        database.close()


def read_bound(url: str, timeout: float, shard_hosts: Hosts) -> Mapping[str, Sequence[str]]:
    """The columns that tags are bound to, by tag. Blocking."""
    database, found = Database(url, timeout, shard_hosts=shard_hosts), defaultdict[str, list[str]](list)
    try:
        for one in database.bindings():
            found[one.tag].append(one.place)
    finally:
        database.close()
    return found


def is_lead(shard: Found) -> bool:
    """Tell whether a database holds the nodes and leases: the first shard of a fleet, or a single database."""
    return shard.row is None or (shard.row.numbering.offset == LEAD and not shard.row.joining)
