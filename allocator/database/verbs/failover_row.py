"""The row of `allocator_failover`: the last server run, and the numbers to keep clear of since."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, func, literal, select, text, update

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import failover, segment
from allocator.database.verbs import tickets
from allocator.rules.failover import NOTHING, ONCE, UNTRUSTED, Failover, Skipped
from allocator.schemes.ticket import REPLACE

PART = 10_000
"""Rows that one statement marks, in a fraction of any timeout: a server may have a million tags."""

MOST = 240
"""Characters of a run that a mark leaves room for in its column."""

RESTORED = "restored"
"""Written as the server run after a restore; no server has it."""


RUN = f"REPLACE(server_run, '{UNTRUSTED}', '')"
"""The run in the row: a shard that is not trusted, whose tickets stop, still makes tags and leases numbers."""


def fetch(connection: Connection, dialect: Dialect) -> Failover | None:
    row = connection.execute(select(*(failover.c[name] for name in Failover._fields))).first()
    return Failover(*row) if row else None


def unmoved(connection: Connection, dialect: Dialect, state: Failover) -> list[ColumnElement[Any] | TextClause]:
    """The fence of a statement: it finds the row as `state` has it, on the server run that wrote it, which lasts."""
    known = (failover.c[name] == value for name, value in state._asdict().items())
    return [failover.c.id == 1, *known, text(dialect.is_here(connection, RUN)), text(dialect.lasting(connection))]


def add(connection: Connection, dialect: Dialect, fresh: Failover) -> None:
    """Write the first row, unless there is one."""
    connection.execute(dialect.insert_missing(failover), {"id": 1, **fresh._asdict()})


def move(
    connection: Connection,
    dialect: Dialect,
    before: Failover,
    fresh: Failover,
    skip: Skipped = NOTHING,
    is_failover: bool = False,
) -> bool:
    """Replace the row and skip numbers; False, and no change, if the row has changed since `before` was read.

    One transaction: of several processes that notice a failover, only one skips. The size of the skip depends on the
    time, so that two servers that continue from one row skip differently.
    """
    with dialect.transaction(connection):
        as_it_was = (failover.c[name] == value for name, value in before._asdict().items())
        moved = connection.execute(update(failover).where(*as_it_was).values(fresh._asdict())).rowcount
        if moved and is_failover:
            leave(connection, fresh.run)
        if moved and skip.nodes:
            dialect.skip_nodes(connection, skip.nodes)
        if moved and skip.tickets and dialect.tickets(connection) == REPLACE:
            tickets.skip(connection, skip.tickets)
    return bool(moved)


def leave_part(connection: Connection, dialect: Dialect, run: str, after: str) -> str | None:
    """Mark `PART` rows of those that `move` marks, by name from `after` on; None where fewer are left.

    Before the move, which would be cut off at its timeout with too many rows, and again at each try. A row may be
    marked without it: the next claim then notes the failover, as it would of the row as it was.
    """
    named = segment.c.tag
    part = select(named).where(named > after, *others(run)).order_by(named).limit(1).offset(PART - 1)
    last: str | None = connection.scalar(part)
    if last is not None:
        leave(connection, run, named > after, named <= last)
    return last


def others(run: str) -> tuple[ColumnElement[bool], ...]:
    was = segment.c.server_run
    return was != run, func.substr(was, 1, len(ONCE)) != ONCE


def leave(connection: Connection, run: str, *where: ColumnElement[bool]) -> None:
    """Mark the rows of tags that other runs have written, or nobody: ids of them may be forgotten, see `ONCE`."""
    was = segment.c.server_run
    # Without commas, since a run after one is that of a server which may write the row.
    left = literal(ONCE).concat(func.replace(func.substr(was, 1, MOST), ",", " "))
    connection.execute(update(segment).where(*where, *others(run)).values(server_run=left))


def trust(connection: Connection, dialect: Dialect) -> None:
    """Let the tickets of a shard continue on the server run that its row has."""
    connection.execute(update(failover).values(server_run=func.replace(failover.c.server_run, UNTRUSTED, "")))


def end_run(connection: Connection, dialect: Dialect) -> None:
    """Mark every row as written on another server run: an operator knows of forgotten ids that nothing else shows."""
    for rows in (segment, failover):
        connection.execute(update(rows).values(server_run=RESTORED))
