"""The handlers that give ids out."""

from __future__ import annotations

import time
from dataclasses import dataclass

from allocator.aio import AsyncAllocator
from allocator.errors import InvalidSetting
from allocator.inspection import inspect_id
from allocator.schemes.limits import MAX_SECONDS, check_tag
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.wire import inspection_to_json, lease_to_json, segment_to_json
from allocator.service.asked import Answer, Asked
from allocator.service.draws import Draw, Draws
from allocator.service.sequences import Sequences

MAX_READY = 10_000
"""Hot routes that one token keeps ready; the others take the long way."""

SKEW = 60_000
"""Milliseconds that a client's clock may differ from ours, so that none leases a worker far into the future."""


@dataclass(frozen=True, slots=True)
class Ids:
    ids: AsyncAllocator
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
        asked.grant.use(count)
        body = draw.body(await draw.take(count))
        if len(asked.grant.ready) < MAX_READY:
            asked.grant.ready[asked.path] = draw
        return Answer(body)

    async def segment(self, asked: Asked) -> Answer:
        size, name = asked.query.get("size"), asked.names["tag"]
        asked.grant.use(size or 1)
        seen, exact = asked.query.get("seen", {}), asked.query.get("exact", False)
        if exact and size is None:
            raise InvalidSetting("exact needs a size")
        return Answer(segment_to_json(name, await self.sequences.claim(name, size, seen, exact=exact)))

    async def ticket(self, asked: Asked) -> Answer:
        kind = check_tag(asked.names["type"])
        asked.grant.use(1)
        number = await self.ids.ticket(kind)
        self.tickets[kind] = self.tickets.get(kind, 0) + 1
        return Answer({"type": kind, "id": str(number)})

    async def node(self, asked: Asked) -> Answer:
        asked.grant.use(1)
        return Answer({"node": str(await self.ids._on_thread(self.ids._allocator._backend.register_node))})

    async def lease(self, asked: Asked) -> Answer:
        return await self._leased(asked, None)

    async def renew(self, asked: Asked) -> Answer:
        form = asked.body
        worker = int(asked.names["worker"])
        return await self._leased(asked, Lease(worker, form["holder"], form["since"], form["now"]))

    async def _leased(self, asked: Asked, lease: Lease | None) -> Answer:
        form = asked.body
        check_times(form["now"], form["until"], int(time.time() * 1000))
        asked.grant.use(1)
        claim, backend = LeaseClaim(lease, form["now"], form["until"]), self.ids._allocator._backend
        found = await self.ids._on_thread(backend.lease_worker, claim, form["layout"], form["epoch"])
        return Answer(lease_to_json(found))

    async def inspect(self, asked: Asked) -> Answer:
        scheme, epoch = asked.query.get("scheme"), asked.query.get("epoch")
        return Answer(inspection_to_json(inspect_id(asked.names["id"], scheme=scheme, epoch=epoch)))


def check_times(now: int, until: int, here: int) -> None:
    """The milliseconds of a lease, by the client's clock, beside our own."""
    if abs(now - here) > SKEW:
        raise InvalidSetting(f"now must be within {SKEW // 1000} seconds of the service's clock, got {now - here:+} ms")
    if not now < until <= now + MAX_SECONDS * 1000:
        raise InvalidSetting(f"until must be at most {MAX_SECONDS:g} seconds after now, got {until - now} ms")
