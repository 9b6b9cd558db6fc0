"""The rows of `allocator_ticket` and `allocator_ticket_counter`: tickets drawn, each by one statement.

Every statement that draws is fenced by the revision of the shard's row: once that has changed, no ticket is drawn that
follows the old numbering. It is fenced by the server's identity too: after a failover or a restore on another server,
which may have forgotten ids, nothing is drawn before an operator has said where to go on.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from sqlalchemy import Connection, TextClause, func, select, text, update

from allocator.database.tables import counter, ticket
from allocator.database.verbs.common import Common
from allocator.database.verbs.segments import only_row
from allocator.rules.fleet import REPLACE, Shard
from allocator.schemes.ticket import Numbering

FENCE = (
    "FROM allocator_shard "
    "WHERE allocator_shard.id = 1 AND allocator_shard.revision = :revision AND allocator_shard.server = {server}"
)
FLOOR = ".floor"
"""The type of a row that keeps the floor; no type of a user's begins with a dot."""

COUNT = (
    "INSERT INTO allocator_ticket_counter (type, id) SELECT CAST(:type AS VARCHAR(64)), CAST(:first AS BIGINT) "
    f"{FENCE} ON CONFLICT (type) DO UPDATE SET id = allocator_ticket_counter.id + CAST(:step AS BIGINT) RETURNING id"
)


KEEP = text("REPLACE INTO allocator_ticket (type, id) VALUES (:type, :last)")
"""Where an explicit id raises the auto-increment; the row keeps it up."""


@cache
def with_server(statement: str, server: str) -> TextClause:
    return text(statement.format(server=server))


class TicketVerbs(Common):
    replacing: ClassVar[str]
    counting: ClassVar[str] = COUNT

    def server(self, connection: Connection) -> str:
        """An SQL expression for the server and database that this is."""
        raise NotImplementedError

    def read_server(self, connection: Connection) -> str:
        """The identity of the server and database that this is."""
        return str(connection.exec_driver_sql(f"SELECT {self.server(connection)}").scalar())

    def place(self, connection: Connection) -> str:
        """An SQL expression for where that is at the moment."""
        return self.server(connection)

    def numbering_of_server(self, connection: Connection) -> Numbering | None:
        """Offset and step that the server is set to, as one of several that are no cluster."""
        return None

    def draw_ticket(self, connection: Connection, kind: str, shard: Shard) -> int | None:
        """The next ticket of a type; None when the shard's row is not as we know it. What is not used is burnt."""
        draw = self.replace_ticket if shard.statement == REPLACE else self.count_ticket
        return draw(connection, kind, shard)

    def replace_ticket(self, connection: Connection, kind: str, shard: Shard) -> int | None:
        """By the statement of the original: a new row in place of the old one, and its auto-increment value."""
        return self.drawn(connection, self.replacing, kind, shard)

    def count_ticket(self, connection: Connection, kind: str, shard: Shard) -> int | None:
        """By adding to the row."""
        return self.drawn(connection, self.counting, kind, shard)

    def drawn(self, connection: Connection, statement: str, kind: str, shard: Shard) -> int | None:
        fenced = with_server(statement, self.server(connection))
        return only_row(connection.execute(fenced, drawn_by(kind, shard)).all(), kind)

    def count_types(self, connection: Connection, kind: str) -> int | None:
        """How many types have tickets; None where this one is among them."""
        for drawn_from in (ticket, counter):
            if connection.scalar(select(drawn_from.c.type).where(drawn_from.c.type == kind)) is not None:
                return None
        counts = (select(func.count()).select_from(one).where(one.c.type != FLOOR) for one in (ticket, counter))
        return sum(connection.scalar(count) or 0 for count in counts)

    # -- under the lock of the shard

    def lock_shard(self, connection: Connection) -> None:
        """In a transaction: every draw that has begun ends before this returns, and none begins until the commit."""
        raise NotImplementedError

    def greatest_ticket(self, connection: Connection, numbering: Numbering) -> int:
        """The greatest value of the auto-increment so far; drawn, since a row may have been replaced by a lower one."""
        raise NotImplementedError

    def greatest_of_all(self, connection: Connection, numbering: Numbering) -> int:
        """No ticket that was ever given is greater."""
        counted: int = connection.scalar(select(func.max(counter.c.id))) or 0
        return max(counted, self.greatest_ticket(connection, numbering))

    def number_from(self, connection: Connection, numbering: Numbering, first: int) -> None:
        """Let the auto-increment go on with `first`, an id of this numbering that is greater than all so far."""
        if first > 1:
            connection.execute(KEEP, {"type": FLOOR, "last": first - 1})

    def count_from(self, connection: Connection, numbering: Numbering, first: int) -> None:
        connection.execute(update(counter).values(id=first - numbering.step))


def drawn_by(kind: str, shard: Shard) -> dict[str, object]:
    """The parameters of a draw."""
    numbering = shard.numbering
    return {
        "type": kind,
        "revision": shard.revision,
        "offset": numbering.offset,
        "step": numbering.step,
        "floor": numbering.floor,
        "first": numbering.following(0),
    }
