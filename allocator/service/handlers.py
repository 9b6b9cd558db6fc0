"""What answers the routes of ids and of tags."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from allocator.errors import InvalidSetting, MaxValueWentBack
from allocator.generators.inspect_id import inspect_id
from allocator.host import Host
from allocator.remote.wire import inspection_to_json, lease_to_json, segment_to_json, tag_to_json, whole
from allocator.rules.node_failover import most_ahead
from allocator.rules.token import DRAW, READ
from allocator.schemes.checks import check_tag
from allocator.schemes.layout import Layout
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE, Lease, LeaseClaim
from allocator.service.dispatch import Asked, json_response
from allocator.service.log_config import caller_of
from allocator.service.problems import HttpRefusal, SaysWentBack
from allocator.service.sequences import Pages, Sequences, page_of, ticket_types
from allocator.service.sources import Source, Sources

MAX_READY = 10_000
"""Hot routes that one token keeps ready; the others take the long way."""

WORKERS = (SNOWFLAKE.limit("datacenter") + 1) * (SNOWFLAKE.limit("worker") + 1)
MAX_LEASE = 600_000
"""Milliseconds; who leases all workers has them for so long and no longer."""
SKEW = 60_000
"""Milliseconds that a client's clock may differ from ours, so that none leases a worker far into the future."""

PAGE = 100
"""Tags in an answer, unless it is said how many."""

CONDITIONS = ("If-None-Match", "If-Match")


@dataclass(frozen=True, slots=True)
class Ids:
    ids: Host
    sources: Sources
    sequences: Sequences
    tickets: dict[str, int]
    """How many tickets of a type were given, for the figures."""

    async def of_tag(self, asked: Asked) -> Response:
        """The next ids of a tag."""
        return await self._taken(asked, await self.sequences.source(asked.name("tag")))

    async def meteor(self, asked: Asked) -> Response:
        """Meteor ids."""
        return await self._taken(asked, self.sources.meteor)

    async def snowflake(self, asked: Asked) -> Response:
        """Snowflake ids."""
        return await self._taken(asked, self.sources.snowflake)

    async def objectids(self, asked: Asked) -> Response:
        """ObjectIds."""
        return await self._taken(asked, self.sources.objectid)

    async def _taken(self, asked: Asked, source: Source) -> Response:
        count = asked.query.get("count", 1)
        body = source.body(await source.take(count))
        asked.grant.charge(count)
        if len(asked.grant.ready) < MAX_READY:
            asked.grant.ready[asked.request.scope["path"]] = source
        return json_response(body)

    async def segment(self, asked: Asked) -> Response:
        """A segment of a tag's ids, for a client that serves them from memory."""
        size, name = asked.query.get("size"), asked.name("tag")
        seen, exact = asked.query.get("seen", {}), asked.query.get("exact", False)
        if exact and size is None:
            raise InvalidSetting("exact needs a size")
        try:
            segment = await self.sequences.claim(name, size, seen, exact=exact)
        except MaxValueWentBack as error:
            raise (SaysWentBack(*error.args) if seen else error) from error
        asked.grant.charge(len(segment))
        return json_response(segment_to_json(name, segment))

    async def ticket(self, asked: Asked) -> Response:
        """The next ticket of a type."""
        kind = check_tag(asked.name("type"))
        number = await (self.ids.ticket(kind) if kind in self.tickets else self._first_ticket(kind))
        asked.grant.charge(1)
        self.tickets[kind] = self.tickets.get(kind, 0) + 1
        return json_response({"type": kind, "id": str(number)})

    async def _first_ticket(self, kind: str) -> int:
        """The first of its type in this process."""
        count = partial(self.ids.run, ticket_types, self.ids.databases, kind)
        if await count() is None:
            return await self.ids.ticket(kind)
        return await self.sequences.newcomers.make("type", kind, count, partial(self.ids.ticket, kind))

    async def node(self, asked: Asked) -> Response:
        """A meteor node for the caller alone."""
        asked.grant.admit_rare()
        return json_response({"node": str(await self.ids.register_node())})

    async def lease(self, asked: Asked) -> Response:
        """A snowflake worker, leased."""
        return await self._leased(asked, None)

    async def renew(self, asked: Asked) -> Response:
        """The lease of a worker, renewed."""
        form = asked.body
        worker = whole("worker", asked.name("worker"), 0, WORKERS - 1)
        return await self._leased(asked, Lease(worker, form["holder"], form["since"], form["now"]))

    async def _leased(self, asked: Asked, lease: Lease | None) -> Response:
        form = asked.body
        check_format(form["layout"], form["epoch"])
        if lease is None:
            asked.grant.admit_rare()
        claim = LeaseClaim(lease, form["now"], form["until"])
        here, ahead = int(time.time() * 1000), 0
        if claim.now > here + SKEW:
            # A database that may have forgotten leases sets those that follow ahead of the clock, and whoever has them.
            ahead = await self.ids.run(self._most_ahead)
        check_times(claim.now, claim.until, here, ahead)
        return json_response(lease_to_json(await self.ids.lease_worker(claim, form["layout"], form["epoch"])))

    def _most_ahead(self) -> int:
        return most_ahead(self.ids.databases.lead().failover(), MAX_LEASE)

    async def inspect(self, asked: Asked) -> Response:
        """An id, taken apart."""
        return json_response(inspection_to_json(inspect_id(asked.name("id"), **asked.query)))


def check_times(now: int, until: int, here: int, ahead: int) -> None:
    """The milliseconds of a lease, by the client's clock, beside our own, of which it may be `ahead`."""
    if not here - SKEW <= now <= here + SKEW + ahead:
        raise InvalidSetting(
            f"now must be within {SKEW // 1000} seconds of the service's clock, got {now - here:+} ms; "
            "check the clocks of both machines"
        )
    if not now < until <= now + MAX_LEASE:
        raise InvalidSetting(f"until must be at most {MAX_LEASE // 1000} seconds after now, got {until - now} ms")


def check_format(layout: Layout, epoch: int) -> None:
    """The service's own format, and no other: all of a database have one, and the first to lease would choose it."""
    if layout != SNOWFLAKE or epoch != EPOCH:
        raise InvalidSetting(
            f"this service leases workers for the layout {SNOWFLAKE} and the epoch {EPOCH}, got {layout} and {epoch}"
        )


@dataclass(frozen=True, slots=True)
class Administration:
    sequences: Sequences

    async def list(self, asked: Asked) -> Response:
        """The tags that the token may read, by name.

        A full page has a `next`, after which nothing may come.
        """
        after, limit, token = asked.query.get("after", ""), asked.query.get("limit", PAGE), asked.grant.token

        def page(tags: Pages) -> bytes:
            found = page_of(tags, after, limit, lambda name: token.may(READ, name))
            answer: dict[str, Any] = {"sequences": [tag_to_json(tag) for tag in found]}
            return json.dumps(answer | ({"next": found[-1].name} if len(found) == limit else {})).encode()

        return json_response(await self.sequences.read(page))

    async def get(self, asked: Asked) -> Response:
        """The settings of a tag, and how far it is claimed.

        Who may draw ids may know them too, as a client that serves ids from memory must.
        """
        name = check_tag(asked.name("tag"))
        if not asked.grant.token.may(READ, name):
            asked.grant.check(DRAW, name)
        return json_response(tag_to_json(await self.sequences.get(name)))

    async def put(self, asked: Asked) -> Response:
        """Create or change a tag; with If-None-Match only create it, with If-Match only change it."""
        new, old = (is_given(name, asked.request.headers) for name in CONDITIONS)
        name, form = check_tag(asked.name("tag")), dict(asked.body)
        tag, created = await self.sequences.put(name, form, caller_of(asked.request.scope), new=new, old=old)
        return json_response(tag_to_json(tag), 201 if created else 200)


def is_given(condition: str, headers: Mapping[str, str]) -> bool:
    """Whether a request depends on there being a tag, or none; tags have no ETag to compare with."""
    given = [value for name, value in headers.items() if name == condition.lower()]
    if any(value.strip() != "*" for value in given):
        raise HttpRefusal(400, f"{condition} must be *, got {', '.join(given)!a:.80}")
    return bool(given)
