"""The row of `allocator_shard`: read, made, and changed under a lock together with everything that follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from secrets import token_hex
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, insert, literal_column, select, update

from allocator.database.tables import counter, node, segment, shard, ticket, worker
from allocator.database.verbs.segments import SegmentVerbs
from allocator.database.verbs.tickets import FLOOR, TicketVerbs
from allocator.errors import ShardMisconfigured
from allocator.rules.fleet import ALONE, BEGUN, DEFAULT_FLEET, REPLACE, Member, Shard, Target
from allocator.schemes.tag import Tag
from allocator.schemes.ticket import Numbering

Decision = Callable[[Shard, int], Shard | None]
"""From a shard's row, and the greatest ticket it has given, to the row as it should be; None to leave it."""


class ShardVerbs(SegmentVerbs, TicketVerbs):
    def read_shard(self, connection: Connection) -> Shard | None:
        rows = connection.execute(select(shard)).all()
        return as_shard(rows[0]) if rows else None

    def read_member(self, connection: Connection, alone: bool = False) -> Shard | None:
        """The row; None also where an upgrade wrote it and nothing was drawn since: it may become any fleet's, or, if
        only no ticket was drawn, that of another fleet of this database alone."""
        row = self.read_shard(connection)
        if row is None or not row.is_alone:
            return row
        is_used = self.holds_tickets if alone else self.holds_ids
        # Read again: another process may have made it a member of its fleet meanwhile, and drawn.
        return self.read_shard(connection) if is_used(connection) else None

    def begin_alone(self, connection: Connection, told: str) -> None:
        """Write the row of a database of its own, so that nobody who draws ids needs to. It stays as it is if there is
        one, or if rows of tags or tickets say that there was one."""
        outgrown = select(exists(select(segment).where(segment.c.shard_step != 1)))
        if self.read_shard(connection) or self.holds_tickets(connection) or connection.scalar(outgrown):
            return
        ours = Member(token_hex(16), 1, told)
        self.add_shard(connection, Shard(DEFAULT_FLEET, ours.key, "", REPLACE, 1, Numbering(1, 1), ALONE, (ours,)))

    def read_place(self, connection: Connection) -> str:
        """Where this runs, exact enough to tell two servers apart that can be reached at one time."""
        return str(connection.exec_driver_sql(f"SELECT {self.place(connection)}").scalar())

    def holds_tickets(self, connection: Connection) -> bool:
        return any(connection.scalar(select(exists(select(found)))) for found in (ticket, counter))

    def holds_ids(self, connection: Connection) -> bool:
        """Whether anything was made of it by itself: tickets and tags, but also nodes and leases, which the lead of a
        fleet would give again."""
        others = (select(segment), select(worker), select(node).where(node.c.process != 0))  # 0 is one left out
        return self.holds_tickets(connection) or any(connection.scalar(select(exists(other))) for other in others)

    def last_ticket(self, connection: Connection) -> int:
        """The greatest ticket in the tables, 0 if there is none."""
        of_rows = select(func.max(ticket.c.id)).where(ticket.c.type != FLOOR)
        return max(connection.scalar(of_rows) or 0, connection.scalar(select(func.max(counter.c.id))) or 0)

    def add_shard(self, connection: Connection, fresh: Shard) -> None:
        """Make the row, and number the tickets by it; nothing if there is a row already that is in use."""
        with self.transaction(connection):
            self.lock_shard(connection)
            now = self.read_shard(connection)
            alone = fresh.numbering.step == 1
            if now is not None and (fresh.is_alone or self.read_member(connection, alone) is not None):
                return
            if not alone and self.holds_ids(connection):
                raise ShardMisconfigured("it has given ids of its own meanwhile; empty its tables, and begin again")
            here: ColumnElement[str] = literal_column(self.server(connection))
            write = insert(shard) if now is None else update(shard)
            connection.execute(write.values({**columns_of(fresh), "id": 1, "server": here}))
            if not fresh.joining:
                self.number_from(connection, fresh.numbering, fresh.numbering.following(0))

    def begin_shard(self, connection: Connection, key: str) -> None:
        """The fleet is complete: from now on a shard without a row has lost it."""
        connection.execute(update(shard).where(shard.c.shard_key == key, shard.c.revision == 0).values(revision=BEGUN))

    def change_shard(
        self, connection: Connection, decide: Decision, tags: Sequence[Tag] = (), trust: bool = False
    ) -> Shard:
        """Let `decide` change the row while nobody draws, and make tickets and segments follow. Returns the row.

        tags: how far they are claimed anywhere, for a shard that enters a new generation.
        trust: let the row be this server's, whichever wrote it.
        """
        self.see_the_newest(connection)
        with self.transaction(connection):
            self.lock_shard(connection)
            now = self.read_shard(connection)
            if now is None:
                raise ShardMisconfigured("the row of allocator_shard is gone; restore it before ids are drawn again")
            greatest = self.greatest_of_all(connection, now.numbering)
            fresh = decide(now, greatest)
            if fresh is None:
                return now
            values: dict[str, Any] = columns_of(fresh)
            if trust:
                values["server"] = literal_column(self.server(connection))
            connection.execute(update(shard).values(values))
            if fresh.numbering.floor != now.numbering.floor or fresh.generation != now.generation:
                first = fresh.numbering.following(greatest)
                self.number_from(connection, fresh.numbering, first)
                self.count_from(connection, fresh.numbering, first)
            if tags or fresh.lane != now.lane:
                self.raise_segments(connection, tags, fresh.lane)
            return fresh


def as_shard(row: Any) -> Shard:
    return Shard(
        row.fleet,
        row.shard_key,
        row.server,
        row.statement,
        row.generation,
        Numbering(row.shard_offset, row.shard_step, row.floor, row.ceiling),
        row.revision,
        members_of(json.loads(row.members)),
        target_of(row.target),
    )


def members_of(listed: list[dict[str, Any]]) -> tuple[Member, ...]:
    return tuple(Member(**member) for member in listed)


def target_of(written: str | None) -> Target | None:
    if written is None:
        return None
    parts = json.loads(written)
    return Target(**{**parts, "members": members_of(parts["members"])})


def columns_of(fresh: Shard) -> dict[str, object]:
    numbering = fresh.numbering
    return {
        "fleet": fresh.fleet,
        "shard_key": fresh.key,
        "statement": fresh.statement,
        "generation": fresh.generation,
        "shard_offset": numbering.offset,
        "shard_step": numbering.step,
        "floor": numbering.floor,
        "ceiling": numbering.ceiling,
        "revision": fresh.revision,
        "members": json.dumps([asdict(member) for member in fresh.members]),
        "target": json.dumps(asdict(fresh.target)) if fresh.target else None,
    }
