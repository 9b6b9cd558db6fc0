"""The row of `allocator_epoch`: who this database was when it was last looked at, and what is kept clear since."""

from __future__ import annotations

from sqlalchemy import Connection, update

from allocator.database.dialect import Dialect
from allocator.database.tables import epoch
from allocator.rules.node_failover import Failover


def add(connection: Connection, dialect: Dialect, fresh: Failover) -> None:
    """Write the first row, unless somebody else just did."""
    connection.execute(dialect.insert_missing(epoch), {"id": 1, **fresh._asdict()})


def move(connection: Connection, dialect: Dialect, before: Failover, fresh: Failover, nodes: int = 0) -> None:
    """Write a row over another, and leave so many node numbers out; nothing if it is not that one any more.

    As one: of several processes that see that the database has moved, one alone leaves numbers out. How many is
    told by the time, so that those who go on from one row elsewhere begin at another number; but not if some leave
    them out once and others twice.
    """
    unchanged = (epoch.c.server == before.server, epoch.c.run == before.run)
    with dialect.transaction(connection):
        moved = connection.execute(update(epoch).where(*unchanged).values(fresh._asdict())).rowcount
        if moved and nodes:
            dialect.skip_nodes(connection, nodes)
