"""Draw tickets from `allocator_ticket` and `allocator_ticket_counter`, each by one statement.

The revision of the shard's row fences every draw: after a change of the row no ticket follows the old numbering. The
server run fences it too: another run may have forgotten ids and skips some first, see `failover.move`. With several
shards the server's identity fences it too, and an operator says where the shard continues: it may have forgotten
how its fleet grew.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, TextClause, exists, func, select, text, update

from allocator.database.schema.tables import counter, ticket
from allocator.database.verbs.claims import only_row
from allocator.rules.fleet_consistency import REPLACE, Shard
from allocator.schemes.ticket import ShardNumbering

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect

FLOOR = ".floor"
"""The type of a row of `allocator_ticket` that keeps the floor; no type of a user's begins with a dot."""
KEEP = text("REPLACE INTO allocator_ticket (type, id) VALUES (:type, :last)")
"""An explicit id raises the auto-increment; the row stays, since MySQL 5.7 forgets the counter at a restart."""
FENCE = (
    "FROM allocator_shard, allocator_failover WHERE allocator_failover.id = 1 AND {here} AND {lasting} "
    "AND allocator_shard.id = 1 AND allocator_shard.revision = :revision AND allocator_shard.server IN ('', {server})"
)
FIRST = "CAST(:first AS BIGINT) + CAST(:step AS BIGINT) * allocator_failover.first_value"
"""The first ticket of a new type, above the tickets of a forgotten one."""
COUNT = (
    f"INSERT INTO allocator_ticket_counter (type, id) SELECT CAST(:type AS VARCHAR(64)), {FIRST} "
    f"{FENCE} ON CONFLICT (type) DO UPDATE SET id = allocator_ticket_counter.id + CAST(:step AS BIGINT) RETURNING id"
)


def draw(connection: Connection, dialect: Dialect, kind: str, shard: Shard) -> int | None:
    """Draw the next ticket of a type; None if the shard's row has changed. An unused ticket is burnt."""
    numbering = shard.numbering
    parameters: dict[str, object] = {
        "type": kind,
        "revision": shard.revision,
        "offset": numbering.offset,
        "step": numbering.step,
        "floor": numbering.floor,
        "first": numbering.following(0),
    }
    statement = dialect.count_ticket
    if shard.statement == REPLACE:
        statement = dialect.replacing(connection)
        dialect.number_as(connection, numbering)
    lasting, lock = dialect.lasting(connection), dialect.shared_lock(connection)
    fence = (dialect.server(connection), dialect.is_here(connection), lasting, lock)
    return dialect.draw(connection, fenced(statement, *fence), parameters)


def drawn(connection: Connection, statement: TextClause, parameters: dict[str, object]) -> int | None:
    """Run a draw that returns the ticket: see `Dialect.draw`."""
    return only_row(connection.execute(statement, parameters).all(), str(parameters["type"]))


@cache
def fenced(statement: str, server: str, here: str, lasting: str, lock: str) -> TextClause:
    return text(statement.format(server=server, here=here, lasting=lasting, lock=lock))


def has_any(connection: Connection, dialect: Dialect) -> bool:
    return any(connection.scalar(select(exists(select(rows)))) for rows in (ticket, counter))


def fetch_last(connection: Connection, dialect: Dialect) -> int:
    """The greatest ticket in the tables, 0 if there is none."""
    of_rows = select(func.max(ticket.c.id)).where(ticket.c.type != FLOOR)
    return max(connection.scalar(of_rows) or 0, connection.scalar(select(func.max(counter.c.id))) or 0)


def greatest_ever(connection: Connection, dialect: Dialect, numbering: ShardNumbering) -> int:
    """The upper bound of all tickets given. A logical replica has the rows, but not the position of their sequence."""
    dialect.number_as(connection, numbering)
    return max(fetch_last(connection, dialect), dialect.greatest_ticket(connection))


def count_from(connection: Connection, numbering: ShardNumbering, first: int) -> None:
    connection.execute(update(counter).values(id=first - numbering.step))
