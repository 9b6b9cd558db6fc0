"""The row of `allocator_shard`: read and made, moved to another server run, and the fence of all that depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from secrets import randbits
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, TextClause, func, insert, literal, select, update

from allocator.database import schema
from allocator.database.dialect import NOWHERE, Dialect, filled, run_of, transaction
from allocator.database.driver_errors import FORBIDDEN, meaning
from allocator.database.tables import lease, node, segment, shard, ticket
from allocator.database.verbs import tickets
from allocator.errors import DatabaseRefused, SchemaDamaged
from allocator.schemes.failover import Move, Skipped
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.ticket import CLAIM, REPLACE

BEGIN = """
INSERT {ignore} INTO allocator_shard (
    id, fleet, slot, slots, taken, taken_under, taken_for, tickets, server_run, move, new_tags_above, moved_at, made
) VALUES (1, '', 1, 1, '', :key, 0, :tickets, {run}, :key, 0, 0, 0)
{or_nothing}
"""
"""The row of a single database."""
FENCE = """
        allocator_shard.id = 1 AND fleet = :known_fleet AND taken = :known_taken  -- the row is as it was read
        AND slot = :known_slot AND slots = :known_slots
        AND allocator_shard.move = :known_move AND new_tags_above = :known_above AND server_run = :known_run
        AND {run} = :here  -- the server that answers is the expected one: that of the row, except for a move
        AND {lasting}"""
"""The condition of what changes by the shard's row; see `known_as`. Last of all, the commit waits for the disk."""


def fetch(connection: Connection, dialect: Dialect) -> Shard | None:
    row = connection.execute(select(*shard.c, shard.c.move.label("last_move"))).first()
    return as_shard(row) if row else None


def fetch_if_made(connection: Connection, dialect: Dialect) -> Shard | None:
    """Fetch the row; None also where its table is missing."""
    return None if schema.missing(connection, [shard]) else fetch(connection, dialect)


def missing(where: str) -> SchemaDamaged:
    return SchemaDamaged(
        f"{where} has no row in allocator_shard, and gives no ids without it; if its tables are new, run: allocator db "
        "upgrade. If not, restore the row from a backup, then run: allocator db mark-restored"
    )


def begin_alone(connection: Connection, dialect: Dialect, where: str) -> None:
    """Write the row of a single database. No change if there is a row. Raises if there was one, as ids show."""
    if fetch(connection, dialect):
        return
    if has_ids(connection, dialect):
        raise missing(where)
    check_writer(connection, dialect)
    row = {"tickets": dialect.tickets, "key": randbits(63)}
    connection.execute(filled(BEGIN, run_of(connection), dialect.words), row)


def has_ids(connection: Connection, dialect: Dialect) -> bool:
    """Whether the database has a tag, or ever gave a ticket, a node or a worker number."""
    nodes = select(node).where(node.c.process != 0)  # 0 marks a skipped number
    given = (select(segment), select(ticket), select(lease), nodes)
    return any(connection.scalar(select(one.exists())) for one in given)


def check_writer(connection: Connection, dialect: Dialect) -> None:
    """Raise where this user could not write the shard's row."""
    refused = DatabaseRefused(
        "this user may not write allocator_shard: use the user that ran allocator db upgrade; run that again where it "
        "was left out"
    )
    with meaning(refused, FORBIDDEN, dialect):
        connection.execute(update(shard).where(shard.c.id == 0).values(slot=0))


def check_owner(connection: Connection, dialect: Dialect) -> None:
    """Raise where this user may not write the shard's row, or the server does not say which one it is."""
    if run_of(connection) == NOWHERE and not dialect.embedded:
        raise DatabaseRefused("a fleet needs servers that say which one they are: see allocator doctor")
    check_writer(connection, dialect)


def claim_tickets(connection: Connection, dialect: Dialect, where: str) -> None:
    """Draw tickets by claims from now on. Refused where some were drawn by REPLACE, since claims would repeat them."""
    lock_row(connection, dialect, waits=True)  # draws under way end first
    now = fetch(connection, dialect)
    if now is None:
        raise missing(where)
    if now.tickets == CLAIM:
        return
    last = connection.scalar(select(func.max(ticket.c.id)))  # also of a row that a failover has left
    if last is not None:
        raise DatabaseRefused(
            f"{where} has drawn tickets with REPLACE, up to {last}, and claims would draw them again; "
            "--tickets claim is for a database before its first ticket. A type can continue as a tag: "
            f"allocator tags create TYPE --start-after {last}"
        )
    connection.execute(update(shard).values(tickets=CLAIM))


def change(
    connection: Connection, dialect: Dialect, known: Shard, values: Mapping[str, object], here: str | None = None
) -> bool:
    """Write the row; False if it is not as `known`, or the server is not `here`: see `fence`."""
    statement = update(shard).where(fence(connection, dialect, known, here)).values(values)
    return connection.execute(statement).rowcount == 1


def write(connection: Connection, dialect: Dialect, known: Shard) -> bool:
    """Write the row as it is, the first statement of a transaction; False if it is not as `known`.

    The write conflicts with every change of the row, also on a cluster of several writers, where a lock would not.
    """
    return change(connection, dialect, known, {"made": shard.c.made + 1})


def insert_under(
    connection: Connection,
    dialect: Dialect,
    known: Shard,
    table: Table,
    values: Mapping[str, object],
    *conditions: ColumnElement[bool],
    end: str,
) -> Insert:
    """An INSERT of one row, where the shard's row is as `known` and these hold. It tells how many rows it made."""
    cells = [
        value if isinstance(value, ColumnElement) else literal(value, table.c[name].type)
        for name, value in values.items()
    ]
    row = select(*cells).select_from(shard).where(*conditions, fence(connection, dialect, known)).suffix_with(end)
    return insert(table).from_select([*values], row).execution_options(preserve_rowcount=True)


def columns_of(move: Move) -> dict[str, object]:
    return {"server_run": move.run, "move": move.key, "new_tags_above": move.first_value, "moved_at": move.at}


def known_as(known: Shard) -> dict[str, object]:
    """The parameters of `FENCE`: the row as it was read."""
    return {
        "known_fleet": known.fleet,
        "known_taken": text_of(known.taken),
        "known_slot": known.residue.offset,
        "known_slots": known.residue.step,
        "known_move": known.move.key,
        "known_above": known.move.first_value,
        "known_run": known.move.run,
    }


def fence(connection: Connection, dialect: Dialect, known: Shard, here: str | None = None) -> TextClause:
    """`FENCE` as a condition of another statement. here: the server run that answers; by default, that of the row."""
    asked = known_as(known) | {"here": known.move.run if here is None else here}
    return filled(FENCE, run_of(connection), dialect.words).bindparams(**asked)


def fence_exists(connection: Connection, dialect: Dialect, known: Shard) -> ColumnElement[bool]:
    return select(shard.c.id).where(fence(connection, dialect, known)).exists()


def text_of(taken: Iterable[int]) -> str:
    return ",".join(map(str, taken))


def lock_row(connection: Connection, dialect: Dialect, waits: bool) -> bool:
    """Lock the shard's row, by a statement of its own. False where it is locked, unless this `waits`."""
    lock = dialect.words.update if waits else dialect.words.at_once
    return connection.exec_driver_sql(f"SELECT id FROM allocator_shard WHERE id = 1 {lock}").first() is not None


def move(
    connection: Connection, dialect: Dialect, before: Shard, after: Move, skip: Skipped, waits: bool = False
) -> bool:
    """Write the move, and skip numbers; False, and no change, if the row is locked or not as `before` any more.

    Of several processes that notice a failover, one moves: the others find the row locked, and read it again. One that
    `waits` gets the lock. The size of the skip depends on the time, so that two servers that continue from one row skip
    differently.
    """
    with transaction(connection, dialect):
        if not lock_row(connection, dialect, waits):
            return False
        moved = change(connection, dialect, before, columns_of(after), after.run)
        if moved:
            dialect.skip_nodes(connection, before.residue, skip.nodes)
        if moved and before.tickets == REPLACE:
            tickets.skip(connection, dialect, skip.tickets)
    return moved


def as_shard(row: Any) -> Shard:
    taken = tuple(map(int, row.taken.split(","))) if row.taken else ()
    residue = Residue(row.slot, row.slots)
    move = Move(row.server_run, row.last_move, row.new_tags_above, row.moved_at)
    return Shard(row.fleet, residue, taken, row.taken_under, row.taken_for, row.tickets, move)
