"""The handlers of the routes of ids and of tags."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from allocator.errors import InvalidSetting, MaxValueWentBack
from allocator.generators.inspect_id import inspect_id
from allocator.remote.wire import (
    inspection_to_json,
    lease_to_json,
    number_lease_to_json,
    segment_to_json,
    tag_to_json,
    whole,
)
from allocator.rules.failover import most_ahead
from allocator.rules.token import DRAW, READ
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE, Lease, LeaseClaim
from allocator.schemes.worker_number_lease import BITS, NumberClaim, NumberLease
from allocator.service.dispatch import Call, json_response
from allocator.service.error_responses import ClientIsAhead, HttpRefusal
from allocator.service.log_config import caller_of
from allocator.service.served_tags import Pages, ServedTags, page_of, ticket_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from allocator.schemes.formats.bit_layout import Layout
    from allocator.service.id_sources import Source, Sources
    from allocator.service_allocator import ServiceAllocator

MAX_READY = 10_000
"""Paths per token that the hot path serves; further ones go through the framework."""

WORKERS = (SNOWFLAKE.limit("datacenter") + 1) * (SNOWFLAKE.limit("worker") + 1)
MAX_LEASE = 600_000
"""Milliseconds of the longest lease. It limits how long a client that leases all workers can block others."""
SKEW = 60_000
"""Milliseconds that a client's clock may differ from ours. A larger skew would allow leases far in the future."""

PAGE = 100

CONDITIONS = ("If-None-Match", "If-Match")


@dataclass(frozen=True, slots=True)
class Ids:
    ids: ServiceAllocator
    sources: Sources
    sequences: ServedTags
    tickets: dict[str, int] = field(default_factory=dict)
    """Issued tickets by type, for the metrics. A type that is not here may exceed the maximum of types."""

    async def of_tag(self, call: Call) -> Response:
        """The next ids of a tag."""
        return await self._take(call, await self.sequences.source(call.name("tag")))

    async def meteor(self, call: Call) -> Response:
        """Meteor ids."""
        return await self._take(call, self.sources.meteor)

    async def snowflake(self, call: Call) -> Response:
        """Snowflake ids."""
        return await self._take(call, self.sources.snowflake)

    async def objectids(self, call: Call) -> Response:
        """ObjectIds."""
        return await self._take(call, self.sources.objectid)

    async def _take(self, call: Call, source: Source) -> Response:
        count = call.query.get("count", 1)
        body = await source.answer(count)
        if len(call.grant.ready) < MAX_READY:
            call.grant.ready[call.request.scope["path"]] = source
        return json_response(body)

    async def segment(self, call: Call) -> Response:
        """A segment of a tag's ids, for a client that serves them from memory."""
        size, name = call.query.get("size"), call.name("tag")
        seen, exact = call.query.get("seen", {}), call.query.get("exact", False)
        if exact and size is None:
            raise InvalidSetting("exact needs a size")
        try:
            segment = await self.sequences.claim(name, size, seen, exact=exact)
        except MaxValueWentBack as error:
            raise (ClientIsAhead(*error.args) if seen else error) from error
        return json_response(segment_to_json(name, segment))

    async def ticket(self, call: Call) -> Response:
        """The next ticket of a type."""
        kind = check_tag(call.name("type"))
        async with call.grant.turn(self.ids.deadline()):
            number = await (self.ids.ticket(kind) if kind in self.tickets else self._first_ticket(kind))
        self.tickets[kind] = self.tickets.get(kind, 0) + 1
        return json_response({"type": kind, "id": str(number)})

    async def _first_ticket(self, kind: str) -> int:
        """Draw the first ticket of a type in this process; enforce the maximum number of types."""
        count = partial(self.ids.run, ticket_types, self.ids.databases, kind)
        if await count() is None:
            return await self.ids.ticket(kind)
        return await self.sequences.newcomers.make("type", kind, count, partial(self.ids.ticket, kind))

    async def node(self, call: Call) -> Response:
        """Register a meteor node."""
        call.grant.admit_rare()
        async with call.grant.turn(self.ids.deadline()):
            return json_response({"node": str(await self.ids.run(self.ids.backend.register_node))})

    async def lease(self, call: Call) -> Response:
        """Lease a snowflake worker."""
        return await self._lease(call, None)

    async def renew(self, call: Call) -> Response:
        """Renew the lease of a worker."""
        form = call.body
        worker = whole("worker", call.name("space"), 0, WORKERS - 1)
        return await self._lease(call, Lease(worker, form["holder"], form["since"], form["now"]))

    async def _lease(self, call: Call, lease: Lease | None) -> Response:
        form = call.body
        check_format(form["layout"], form["epoch"])
        if lease is None:
            call.grant.admit_rare()
        claim = LeaseClaim(lease, form["now"], form["until"])
        here, ahead = int(time.time() * 1000), 0
        if claim.now > here + SKEW:
            # After a failover that may have lost leases, new leases and the clocks of their clients are ahead.
            ahead = await self.ids.run(self._most_ahead)
        check_times(claim.now, claim.until, here, ahead)
        async with call.grant.turn(self.ids.deadline()):
            granted = await self.ids.run(self.ids.backend.lease_worker, claim, form["layout"], form["epoch"])
        return json_response(lease_to_json(granted))

    def _most_ahead(self) -> int:
        return most_ahead(self.ids.databases.lead().failover(), MAX_LEASE)

    async def number(self, call: Call) -> Response:
        """Lease a worker number of a space, renew it, or give it back.

        With `holder` and `number` it is renewed, and with `release` given back. Count your own time from before the
        request: the number must not be used for longer than `seconds` after that.
        """
        space, form = check_tag(call.name("space")), call.body
        length, now, is_release = form["seconds"], form["now"], form.get("release", False)
        if length > MAX_LEASE:
            raise InvalidSetting(f"seconds must be at most {MAX_LEASE // 1000}, got {length / 1000:g}")
        if ("holder" in form) != ("number" in form) or (is_release and "holder" not in form):
            raise InvalidSetting("to renew or release a number, send both number and holder")
        if "holder" not in form:
            call.grant.admit_rare()
            about = (form.get("host", ""), form.get("process", 0))
            claim = NumberClaim(space, form.get("bits", BITS), length, now, token_hex(16), *about)
            async with call.grant.turn(self.ids.deadline()):
                lease = await self.ids.run(self.ids.backend.lease_number, claim)
        else:
            lease = NumberLease(space, form["number"], form["holder"], length)
            backend = self.ids.backend
            async with call.grant.turn(self.ids.deadline()):
                await self.ids.run(backend.release_number if is_release else backend.renew_number, lease, now)
        return json_response(number_lease_to_json(lease, now if is_release else now + length))

    async def inspect(self, call: Call) -> Response:
        """Inspect an id."""
        return json_response(inspection_to_json(inspect_id(call.name("id"), **call.query)))


def check_times(now: int, until: int, here: int, ahead: int) -> None:
    """Check the times of a lease by the client's clock, which may be `ahead` of `here`, our own. In milliseconds."""
    if not here - SKEW <= now <= here + SKEW + ahead:
        raise InvalidSetting(
            f"now must be within {SKEW // 1000} seconds of the service's clock, got {now - here:+} ms; "
            "check the clocks of both machines"
        )
    if not now < until <= now + MAX_LEASE:
        raise InvalidSetting(f"until must be at most {MAX_LEASE // 1000} seconds after now, got {until - now} ms")


def check_format(layout: Layout, epoch: int) -> None:
    """Accept only the service's own format: a database has one for all, and the first lease would choose it."""
    if layout != SNOWFLAKE or epoch != EPOCH:
        raise InvalidSetting(
            f"this service leases workers for the layout {SNOWFLAKE} and the epoch {EPOCH}, got {layout} and {epoch}"
        )


@dataclass(frozen=True, slots=True)
class Administration:
    sequences: ServedTags

    async def list(self, call: Call) -> Response:
        """List the tags that the token may read, by name.

        A full page has a `next`, even if the next page is empty.
        """
        after, limit, token = call.query.get("after", ""), call.query.get("limit", PAGE), call.grant.token

        def page(tags: Pages) -> bytes:
            found = page_of(tags, after, limit, lambda name: token.may(READ, name))
            answer: dict[str, Any] = {"sequences": [tag_to_json(tag) for tag in found]}
            return json.dumps(answer | ({"next": found[-1].name} if len(found) == limit else {})).encode()

        return json_response(await self.sequences.read(page))

    async def get(self, call: Call) -> Response:
        """Get the settings of a tag, and its last claimed id.

        The right to draw is enough, because clients that serve ids from memory need the settings.
        """
        name = check_tag(call.name("tag"))
        if not call.grant.token.may(READ, name):
            call.grant.check(DRAW, name)
        return json_response(tag_to_json(await self.sequences.get(name)))

    async def put(self, call: Call) -> Response:
        """Create or change a tag. With If-None-Match: * only create it, with If-Match: * only change it."""
        new, old = (is_given(name, call.request.headers) for name in CONDITIONS)
        name, form = check_tag(call.name("tag")), dict(call.body)
        tag, created = await self.sequences.put(name, form, caller_of(call.request.scope), new=new, old=old)
        return json_response(tag_to_json(tag), 201 if created else 200)


def is_given(condition: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a request has this condition. Its value must be *, since tags have no ETag."""
    given = [value for name, value in headers.items() if name == condition.lower()]
    if any(value.strip() != "*" for value in given):
        raise HttpRefusal(400, f"{condition} must be *, got {', '.join(given)!a:.80}")
    return bool(given)
