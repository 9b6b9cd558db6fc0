"""The row of `allocator_epoch`: who this database was when it was last looked at, and what is kept clear since."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Connection, Insert, func, select, update

from allocator.database.tables import epoch, node
from allocator.database.verbs.nodes import NodeVerbs
from allocator.database.verbs.server_run import NOWHERE, EpochVerbs
from allocator.database.verbs.tickets import TicketVerbs
from allocator.rules.node_failover import Ground


class GroundVerbs(EpochVerbs, NodeVerbs, TicketVerbs):
    insert_missing_ground: ClassVar[Insert]
    """Insert the row of `allocator_epoch`, or nothing when it is there."""

    def read_ground(self, connection: Connection) -> Ground | None:
        rows = connection.execute(select(*(epoch.c[name] for name in Ground._fields))).all()
        return Ground(*rows[0]) if rows else None

    def read_home(self, connection: Connection) -> str:
        """The identity of the server, which a restart does not change."""
        if self.run_here(connection) == NOWHERE:
            return ""
        return self.read_server(connection)

    def add_ground(self, connection: Connection, fresh: Ground) -> None:
        """Write the first row, unless somebody else just did."""
        connection.execute(self.insert_missing_ground, {"id": 1, **fresh._asdict()})

    def move_ground(self, connection: Connection, before: Ground, fresh: Ground, nodes: int = 0) -> None:
        """Write a row over another, and leave so many node numbers out; nothing if it is not that one any more.

        As one: of several processes that see that the database has moved, one alone leaves numbers out. How many is
        told by the time, so that those who go on from one row elsewhere begin at another number; but not if some leave
        them out once and others twice.
        """
        unchanged = (epoch.c.server == before.server, epoch.c.run == before.run)
        with self.transaction(connection):
            moved = connection.execute(update(epoch).where(*unchanged).values(fresh._asdict())).rowcount
            if moved and nodes:
                self.skip_nodes(connection, nodes)

    def skip_nodes(self, connection: Connection, count: int) -> None:
        """Leave out so many node numbers: one row with a number that was chosen raises the auto-increment."""
        last = connection.scalar(select(func.max(node.c.id))) or 0
        left_out = {"id": last + count, "host": "left out, since it may be forgotten", "process": 0, "version": ""}
        connection.execute(node.insert().values(**left_out, started_at=func.current_timestamp()))
