"""The sequences that number nodes and tickets on PostgreSQL. A used one is raised, and never set back."""

from __future__ import annotations

from sqlalchemy import Connection, TextClause, func, select, text
from sqlalchemy.exc import IntegrityError

from allocator.database.schema.tables import node, ticket
from allocator.database.verbs.claims import only_row
from allocator.database.verbs.tickets import FENCE, FLOOR
from allocator.errors import DatabaseRefused, MaxValueWentBack
from allocator.schemes.ticket import ShardNumbering

REPLACE_UNORDERED = (
    f"INSERT INTO allocator_ticket (type) SELECT CAST(:type AS VARCHAR(64)) {FENCE} "
    "ON CONFLICT (type) DO UPDATE SET id = EXCLUDED.id RETURNING id"
)
"""For an engine that merely looks like PostgreSQL: each of its sessions may keep a part of the sequence, and give a
lower number after a higher one."""
BEFORE = "(SELECT coalesce(max(id), 0) FROM allocator_ticket)"
"""The greatest ticket that the statement sees: drawn before the statement saw it, and so before this one."""
REPLACE = (
    f"WITH fence AS (SELECT 1 {FENCE}), drawn AS ("
    "INSERT INTO allocator_ticket (type) SELECT CAST(:type AS VARCHAR(64)) FROM fence "
    f"ON CONFLICT (type) DO UPDATE SET id = EXCLUDED.id WHERE EXCLUDED.id > {BEFORE} RETURNING id) "
    f"SELECT (SELECT id FROM drawn), {BEFORE} AS before FROM fence"
)
"""A sequence behind its rows lowers none of them: the row is all that tells how far the tickets went. The id that comes
back is this statement's own or none, never that of the row, which another one may have just drawn."""
HOLD = text(
    f"INSERT INTO allocator_ticket (type, id) SELECT :type, {BEFORE} + 64 * CAST(:step AS BIGINT) "
    "ON CONFLICT (type) DO UPDATE SET id = greatest(allocator_ticket.id, EXCLUDED.id)"
)
"""Raise the rows further than a refused draw, or a crash of the server (32 numbers), raises the sequence: else it would
pass them after enough refusals. It takes no right that a draw does not take."""

DRAW_NODES = text(
    "SELECT max(nextval(pg_get_serial_sequence('allocator_node', 'id'))) FROM generate_series(1, CAST(:n AS BIGINT))"
)
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


def draw(connection: Connection, statement: TextClause, parameters: dict[str, object]) -> int | None:
    """See `Dialect.draw`. Raises `MaxValueWentBack` where the sequence is behind the rows."""
    try:
        rows = connection.execute(statement, parameters).all()
    except IntegrityError:  # the number of another type's row came out of the sequence
        hold(connection, statement, parameters)
        raise
    drawn = only_row(rows, str(parameters["type"]))
    before = getattr(rows[0], "before", None) if rows else None
    if before is not None and (drawn is None or drawn <= before):
        hold(connection, statement, parameters)
        raise MaxValueWentBack(
            f"no ticket was given: the rows of allocator_ticket reach {before}, and its sequence is behind them, as "
            "after COPY or logical replication of rows; to skip all that were given, run: allocator db mark-restored"
        )
    return drawn


def hold(connection: Connection, statement: TextClause, parameters: dict[str, object]) -> None:
    """Keep the sequence behind the rows, until an operator lets it skip them."""
    if BEFORE in statement.text:
        connection.execute(HOLD, {"type": FLOOR, "step": parameters["step"]})


def skip_nodes(connection: Connection, count: int) -> None:
    # A logical replica has the rows, but not the position of their sequence.
    end = count + (connection.scalar(select(func.max(node.c.id))) or 0)
    last = connection.scalar(DRAW_NODES, {"n": count}) or 0
    if last < end:
        connection.execute(DRAW_NODES, {"n": end - last})


def skip_tickets(connection: Connection, count: int) -> None:
    end = count + fetch_greatest(connection)
    if raise_tickets(connection, end, count) is None:
        connection.execute(BURN_TICKETS, {"type": FLOOR, "n": count})
    if greatest_ticket(connection) < end:
        raise DatabaseRefused(
            "the sequence of allocator_ticket is behind its rows, as on a logical replica, and this user may not "
            f"raise it; as the owner of the table: SELECT setval({TICKETS}, {end})"
        )


def greatest_ticket(connection: Connection) -> int:
    last = raise_tickets(connection, fetch_greatest(connection))
    if last is None:
        return int(connection.scalars(DRAW_TICKET, {"type": FLOOR}).one())
    connection.execute(KEEP_TICKET, {"type": FLOOR, "last": last})
    return last


def number_from(connection: Connection, numbering: ShardNumbering, first: int) -> None:
    if (numbering.offset, numbering.step, first) != (1, 1, 1):  # the table begins so, and ALTER needs its owner
        connection.exec_driver_sql(
            f"ALTER TABLE allocator_ticket ALTER COLUMN id SET INCREMENT BY {numbering.step} "
            f"SET START WITH {numbering.offset} RESTART WITH {first}"
        )


def fetch_greatest(connection: Connection) -> int:
    """The least position of the sequence of tickets."""
    return connection.scalar(select(func.max(ticket.c.id))) or 0


def raise_tickets(connection: Connection, end: int, count: int = 0) -> int | None:
    """Draw a number and skip `count` more, at least to `end`. Returns the last; None where only the owner may."""
    if not connection.scalar(MAY_SET_TICKETS):
        return None
    return int(connection.scalars(SET_TICKETS, {"n": count, "end": end}).one())
