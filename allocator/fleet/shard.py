"""One shard, as this process knows it."""

from __future__ import annotations

from collections.abc import Callable

from allocator.database.store import Database
from allocator.database.verbs import servers, tickets
from allocator.database.verbs.start import Start
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    FleetGrowing,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
    ServerReplaced,
    ShardMisconfigured,
)
from allocator.rules.fleet import Shard, check_usable, lost
from allocator.rules.fleet_growth import LEAD

DRAWS = 10
"""How often a draw retries after a change of the shard's row, before another shard is tried."""


FAULTS = (
    DatabaseUnavailable,
    DatabaseRefused,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
    ServerReplaced,
    ShardMisconfigured,
)
"""Errors of a shard, after which another one is tried."""
TAG_FAULTS = tuple(kind for kind in FAULTS if kind is not MaxValueWentBack)
"""The same for tags. `MaxValueWentBack` stops a tag instead: ids in memory may be from that shard."""


class Handle:
    """One shard in this process. `row` is None until the shard answers."""

    def __init__(self, number: int, database: Database) -> None:
        self.number = number
        self.database = database
        self.row: Shard | None = None
        self.seen: dict[str, int] = {}
        self.went_back = False
        self.failing = False
        """Its failure was logged."""

    @property
    def leads(self) -> bool:
        """Whether this shard numbers nodes and leases workers for the fleet."""
        return self.row is not None and self.row.numbering.offset == LEAD

    @property
    def where(self) -> str:
        return self.database.address.shown

    def look(self) -> Shard:
        """Fetch the row. Raises if the shard must give no ids."""
        database, known = self.database, self.row
        start = database.start()
        row = start.shard
        if row is None:
            raise lost(self.where)
        database.failover(start)
        check_usable(self.where, row, server_of(database, start))
        is_older = known is not None and row.revision < known.revision
        if (self.went_back or is_older) and row.numbering.floor <= max(self.seen.values(), default=0):
            raise MaxValueWentBack(
                f"{self.where} has forgotten ids, as after a restore; go on above all ids with: "
                f"allocator shards trust {self.where}"
            )
        self.went_back = False
        return row

    def draw(self, kind: str, take: Callable[[Shard], None]) -> int:
        """Draw the next ticket of a type. `take` gets a changed row."""
        for attempt in range(DRAWS):
            row, seen = self.row, self.seen.get(kind, 0)
            assert row is not None
            ticket = self.database.run(tickets.draw, kind, row)
            if ticket is not None and row.numbering.judge(ticket, seen):
                self.seen[kind] = max(ticket, self.seen.get(kind, 0))
                return ticket
            fresh = self.look()
            if fresh == row and attempt:  # the first look may have crossed to another server run
                break
            take(fresh)
        if fresh.numbering.ceiling is None:
            raise DatabaseUnavailable(
                f"{self.where} drew nothing, though nothing had changed there; try again, and if it stays so: "
                "allocator db check"
            )
        raise FleetGrowing(
            f"{self.where} is at its ceiling while the fleet grows; if that was interrupted: allocator shards grow"
        )


def server_of(database: Database, start: Start) -> str:
    return database.run(servers.fetch_identity) if start.server is None else start.server
