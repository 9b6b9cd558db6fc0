"""The row of `allocator_failover`: which server run was here last, and what is kept clear since."""

from __future__ import annotations

from sqlalchemy import Connection, update

from allocator.database.dialect import Dialect
from allocator.database.tables import counter, failover, segment, shard
from allocator.rules.node_failover import NOTHING, Failover, Skipped

RESTORED = "restored"
"""The run of rows that an operator restored: no server's."""


def add(connection: Connection, dialect: Dialect, fresh: Failover) -> None:
    """Write the first row, unless somebody else just did."""
    connection.execute(dialect.insert_missing(failover), {"id": 1, **fresh._asdict()})


def move(connection: Connection, dialect: Dialect, before: Failover, fresh: Failover, skip: Skipped = NOTHING) -> bool:
    """Write a row over another, and skip numbers; False and nothing if it is not that one any more.

    As one: of several processes that see that the database has moved, one alone skips. The time decides how many, so
    that servers that go on from one row skip differently.
    """
    with dialect.transaction(connection):
        as_it_was = (failover.c[name] == value for name, value in before._asdict().items())
        moved = connection.execute(update(failover).where(*as_it_was).values(fresh._asdict())).rowcount
        if moved and skip.nodes:
            dialect.skip_nodes(connection, skip.nodes)
        if moved and skip.tickets:
            connection.execute(update(counter).values(id=counter.c.id + skip.tickets))
            dialect.skip_tickets(connection, skip.tickets)
        if moved and skip.nodes and dialect.embedded:
            # A file says nothing else that the tickets of several shards could be held against.
            connection.execute(update(shard).where(shard.c.shard_step > 1).values(server=RESTORED))
    return bool(moved)


def end_run(connection: Connection, dialect: Dialect) -> None:
    """Let every row be of another server run: an operator knows that ids were forgotten, and nothing else tells."""
    for rows in (segment, failover):
        connection.execute(update(rows).values(server_run=RESTORED))
