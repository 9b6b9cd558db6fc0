"""The sequence of tickets on PostgreSQL, which is raised and never set back."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text

from allocator.database.tables import ticket

TICKETS = "pg_get_serial_sequence('allocator_ticket', 'id')"
MAY_SET_TICKETS = text(f"SELECT has_sequence_privilege({TICKETS}, 'UPDATE')")
SET_TICKETS = text(
    f"WITH drawn AS MATERIALIZED (SELECT nextval({TICKETS}) AS last, CAST(:n AS BIGINT) AS n, CAST(:end AS BIGINT) "
    f"AS e) SELECT CASE WHEN n = 0 AND last >= e THEN last ELSE setval({TICKETS}, greatest(e, last + n)) END FROM drawn"
)
"""setval only where needed: a number drawn by another process between the two calls would be given again."""
DRAW_TICKET = text(
    "INSERT INTO allocator_ticket (type) VALUES (:type) ON CONFLICT (type) DO UPDATE SET id = EXCLUDED.id RETURNING id"
)
KEEP_TICKET = text("INSERT INTO allocator_ticket (type, id) VALUES (:type, :last) ON CONFLICT DO NOTHING")
BURN_TICKETS = text(
    "INSERT INTO allocator_ticket (type) SELECT :type FROM generate_series(1, :n) ON CONFLICT DO NOTHING"
)
"""Each row that is not inserted draws a number. Unlike nextval(), this needs no right on the sequence."""


def fetch_greatest(connection: Connection) -> int:
    """The least position of the sequence of tickets."""
    return connection.scalar(select(func.max(ticket.c.id))) or 0


def raise_tickets(connection: Connection, end: int, count: int = 0) -> int | None:
    """Draw a number and skip `count` more, at least to `end`. Returns the last; None where only the owner may."""
    if not connection.scalar(MAY_SET_TICKETS):
        return None
    return int(connection.scalars(SET_TICKETS, {"n": count, "end": end}).one())
