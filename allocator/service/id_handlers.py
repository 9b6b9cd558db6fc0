"""The handlers that give ids out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from allocator.errors import InvalidSetting, MaxValueWentBack
from allocator.generators.inspect_id import inspect_id
from allocator.host import Host
from allocator.remote.wire import inspection_to_json, lease_to_json, segment_to_json, whole
from allocator.rules.node_failover import most_ahead
from allocator.schemes.checks import check_tag
from allocator.schemes.layout import Layout
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE, Lease, LeaseClaim
from allocator.service.draws import Draw, Draws
from allocator.service.new_names import ticket_types
from allocator.service.problems import SaysWentBack
from allocator.service.request import Answer, Asked
from allocator.service.sequences import Sequences

MAX_READY = 10_000
"""Hot routes that one token keeps ready; the others take the long way."""

WORKERS = (SNOWFLAKE.limit("datacenter") + 1) * (SNOWFLAKE.limit("worker") + 1)
MAX_LEASE = 600_000
"""Milliseconds; who leases all workers has them for so long and no longer."""
SKEW = 60_000
"""Milliseconds that a client's clock may differ from ours, so that none leases a worker far into the future."""


@dataclass(frozen=True, slots=True)
class Ids:
    ids: Host
    draws: Draws
    sequences: Sequences
    tickets: dict[str, int]
    """How many tickets of a type were given, for the figures."""

    async def of_tag(self, asked: Asked) -> Answer:
        return await self._taken(asked, await self.sequences.draw(asked.names["tag"]))

    async def meteor(self, asked: Asked) -> Answer:
        return await self._taken(asked, self.draws.meteor)

    async def snowflake(self, asked: Asked) -> Answer:
        return await self._taken(asked, self.draws.snowflake)

    async def objectids(self, asked: Asked) -> Answer:
        return await self._taken(asked, self.draws.objectid)

    async def _taken(self, asked: Asked, draw: Draw) -> Answer:
        count = asked.query.get("count", 1)
        body = draw.body(await draw.take(count))
        asked.grant.charge(count)
        if len(asked.grant.ready) < MAX_READY:
            asked.grant.ready[asked.path] = draw
        return Answer(body)

    async def segment(self, asked: Asked) -> Answer:
        size, name = asked.query.get("size"), asked.names["tag"]
        seen, exact = asked.query.get("seen", {}), asked.query.get("exact", False)
        if exact and size is None:
            raise InvalidSetting("exact needs a size")
        try:
            segment = await self.sequences.claim(name, size, seen, exact=exact)
        except MaxValueWentBack as error:
            raise (SaysWentBack(*error.args) if seen else error) from error
        asked.grant.charge(len(segment))
        return Answer(segment_to_json(name, segment))

    async def ticket(self, asked: Asked) -> Answer:
        kind = check_tag(asked.names["type"])
        number = await (self.ids.ticket(kind) if kind in self.tickets else self._first_ticket(kind))
        asked.grant.charge(1)
        self.tickets[kind] = self.tickets.get(kind, 0) + 1
        return Answer({"type": kind, "id": str(number)})

    async def _first_ticket(self, kind: str) -> int:
        """The first of its type in this process."""
        count = partial(self.ids.run, ticket_types, self.ids.databases, kind)
        if await count() is None:
            return await self.ids.ticket(kind)
        return await self.sequences.newcomers.make("type", kind, count, partial(self.ids.ticket, kind))

    async def node(self, asked: Asked) -> Answer:
        asked.grant.admit_rare()
        return Answer({"node": str(await self.ids.register_node())})

    async def lease(self, asked: Asked) -> Answer:
        return await self._leased(asked, None)

    async def renew(self, asked: Asked) -> Answer:
        form = asked.body
        worker = whole("worker", asked.names["worker"], 0, WORKERS - 1)
        return await self._leased(asked, Lease(worker, form["holder"], form["since"], form["now"]))

    async def _leased(self, asked: Asked, lease: Lease | None) -> Answer:
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
        return Answer(lease_to_json(await self.ids.lease_worker(claim, form["layout"], form["epoch"])))

    def _most_ahead(self) -> int:
        return most_ahead(self.ids.databases.lead().ground(), MAX_LEASE)

    async def inspect(self, asked: Asked) -> Answer:
        return Answer(inspection_to_json(inspect_id(asked.names["id"], **asked.query)))


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
