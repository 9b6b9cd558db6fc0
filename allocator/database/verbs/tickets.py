"""Tickets of MySQL and MariaDB, each by one statement: `REPLACE INTO` and `LAST_INSERT_ID`, as Flickr drew them.

Elsewhere, and where the shard's row says "claim", a ticket is a claim of one id: see `Database.ticket`.

All types of a database share the auto-increment of `allocator_ticket`, which the session numbers by offset and step of
the slot. The fence of each draw is the shard's row, as this process read it: how tickets are drawn, the slot, the last
move, and the server run, which is also the one that answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from allocator.database.dialect import filled, run_of, triggered
from allocator.database.mysql import BURN_TICKET, KEEP_TICKET, TICKET
from allocator.database.tables import segment, ticket
from allocator.schemes.shared.residues import ALL
from allocator.schemes.slots import Shard
from allocator.schemes.ticket import RESERVED

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect

SKIPPED = ".skipped"
"""The type of the row of `allocator_ticket` up to which tickets are skipped; no type of a user's begins with a dot."""
IS_OF_TICKETS = segment.c.tag.startswith(RESERVED)
"""The rows of `allocator_segment` from which tickets are claimed."""


def draw(connection: Connection, dialect: Dialect, kind: str, shard: Shard) -> int | None:
    """Draw the next ticket of a type; None if the shard's row has changed. An unused ticket is burnt."""
    dialect.number_as(connection, shard.residue)
    statement = filled(TICKET, run_of(connection), dialect.words)
    known = {"shard_move": shard.move.key, "run": shard.move.run}
    known |= {"slot": shard.residue.offset, "slots": shard.residue.step}
    result = connection.execute(statement, {"type": kind, **known})
    if not result.rowcount:
        return None
    if result.lastrowid <= 0:
        raise triggered(kind, "allocator_ticket")
    return int(result.lastrowid)


def skip(connection: Connection, dialect: Dialect, count: int) -> None:
    """Skip tickets of all types, above the greater of counter and rows."""
    dialect.number_as(connection, ALL)
    last = int(connection.execute(BURN_TICKET, {"type": SKIPPED}).lastrowid)
    greatest = connection.scalar(select(func.max(ticket.c.id)))  # of a replica, whose counter REPLACE did not raise
    connection.execute(KEEP_TICKET, {"type": SKIPPED, "last": max(last, greatest or 0) + count})
