"""Tickets of MySQL and MariaDB, each by one statement: `REPLACE INTO` and `LAST_INSERT_ID`, as Flickr drew them.

Elsewhere, and where the shard's row says "claim", a ticket is a claim: see `Database.claim_ticket`.

All types of a database share the auto-increment of `allocator_ticket`, which the session numbers by offset and step of
the shard. The fence of each draw is the shard's row, as this process read it: how tickets are drawn, the numbering and
its revision, the last move, and the server run, which is also the one that answers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import Connection, TextClause, exists, func, or_, select, text
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import run_of
from allocator.database.driver_errors import lacks_counter
from allocator.database.schema.tables import segment, ticket
from allocator.database.verbs.claims import triggered
from allocator.errors import Exhausted
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.ticket import MAX_SHARDS, REPLACE, RESERVED, ShardNumbering

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect

FLOOR = ".floor"
"""The type of a row of `allocator_ticket` that keeps the floor; no type of a user's begins with a dot."""
KEEP = text("REPLACE INTO allocator_ticket (type, id) VALUES (:type, :last)")
"""An explicit id raises the auto-increment; the row stays, since MySQL 5.7 forgets the counter at a restart."""
BURN = text("REPLACE INTO allocator_ticket (type) VALUES (:type)")
DRAW = (
    "REPLACE INTO allocator_ticket (type) SELECT :type FROM allocator_shard "
    f"WHERE id = 1 AND tickets = '{REPLACE}' AND revision = :revision AND move = :now "
    "AND server_run = :run AND {run} = :run {lock}"
)

IS_CLAIMED = segment.c.tag.startswith(RESERVED)
"""The rows of `allocator_segment` from which tickets are claimed."""


def draw(connection: Connection, dialect: Dialect, kind: str, shard: Shard) -> int | None:
    """Draw the next ticket of a type; None if the shard's row has changed. An unused ticket is burnt."""
    number_as(connection, shard.numbering)
    statement = fenced(DRAW, run_of(connection), dialect.shared_lock(connection))
    known = {"revision": shard.revision, "now": shard.move.key, "run": shard.move.run}
    try:
        result = connection.execute(statement, {"type": kind, **known})
    except DBAPIError as error:
        if lacks_counter(error, dialect) and is_at_its_end(connection):
            raise Exhausted("the database has given its last ticket") from error
        raise
    if not result.rowcount:
        return None
    if result.lastrowid <= 0:
        raise triggered(kind, "allocator_ticket")
    return int(result.lastrowid)


@cache
def fenced(statement: str, run: str, lock: str) -> TextClause:
    return text(statement.format(run=run, lock=lock))


def number_as(connection: Connection, numbering: ShardNumbering) -> None:
    """Set the auto-increment of this session to the numbering: the server's own may be that of a replication."""
    offset, step = wanted = (max(1, numbering.offset), max(1, numbering.step))
    if connection.info.get("numbering") != wanted:
        connection.exec_driver_sql(f"SET SESSION auto_increment_offset = {offset}, auto_increment_increment = {step}")
        connection.info["numbering"] = wanted


def is_at_its_end(connection: Connection) -> bool:
    """Whether a row has the last ticket: each shard has one in `MAX_SHARDS` numbers, or more."""
    last = connection.exec_driver_sql("SELECT max(id) FROM allocator_ticket").scalar()
    return int(last or 0) > MAX_ID - MAX_SHARDS


def has_any(connection: Connection, dialect: Dialect) -> bool:
    """Whether tickets were drawn, or may have been: a failover leaves a row."""
    return bool(connection.scalar(select(or_(exists(select(ticket)), exists(select(segment).where(IS_CLAIMED))))))


def fetch_last(connection: Connection, dialect: Dialect) -> int:
    """The greatest ticket in the tables, 0 if there is none."""
    replaced = connection.scalar(select(func.max(ticket.c.id)).where(ticket.c.type != FLOOR))
    return max(replaced or 0, connection.scalar(select(func.max(segment.c.max_value)).where(IS_CLAIMED)) or 0)


def greatest_ever(connection: Connection, dialect: Dialect, shard: Shard) -> int:
    """The upper bound of all tickets given, and of those below the floor, which others may have given.

    Locks the rows of claims: no other process raises them meanwhile.
    """
    claimed = connection.scalars(select(segment.c.max_value).where(IS_CLAIMED).with_for_update()).all()
    replaced = burnt(connection, shard.numbering) if shard.tickets == REPLACE else 0
    return max(replaced, *map(int, claimed), shard.numbering.floor - 1)


def burnt(connection: Connection, numbering: ShardNumbering) -> int:
    """Draw a ticket that nobody gets, the greatest so far: no row need hold the greatest."""
    number_as(connection, numbering)
    return int(connection.execute(BURN, {"type": FLOOR}).lastrowid)


def number_from(connection: Connection, first: int) -> None:
    """Let the auto-increment continue at `first`, which is above all others."""
    if first > 1:
        connection.execute(KEEP, {"type": FLOOR, "last": first - 1})


def skip(connection: Connection, count: int) -> None:
    """Skip tickets of a single database, whose offset and step are 1."""
    last = burnt(connection, ShardNumbering())
    greatest = connection.scalar(select(func.max(ticket.c.id)))  # of a replica, whose counter REPLACE did not raise
    number_from(connection, max(last, greatest or 0) + count + 1)
