"""The move of a database to another server run: the columns of `allocator_shard` that a failover changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, TextClause

from allocator.database.dialect import Dialect, filled, run_of, transaction
from allocator.database.verbs import tickets
from allocator.schemes.failover import Move, Skipped
from allocator.schemes.slots import Shard
from allocator.schemes.ticket import REPLACE

FENCE = """
        allocator_shard.id = 1 AND fleet = :known_fleet AND taken = :known_taken  -- the row is as it was read
        AND slot = :known_slot AND slots = :known_slots
        AND allocator_shard.move = :known_move AND new_tags_above = :known_above AND server_run = :known_run
        AND {run} = :known_run  -- the server that answers is the one that the row names
        AND {lasting}"""
"""The condition of what changes by the shard's row; see `known_as`. Last of all, the commit waits for the disk."""
MOVE = """
UPDATE allocator_shard SET
    server_run = :run, move = :key, new_tags_above = :first_value, moved_at = :at
WHERE id = 1
    AND slot = :known_slot AND slots = :known_slots  -- the row is as it was read
    AND move = :known_move AND new_tags_above = :known_above AND server_run = :known_run
    AND {run} = :run  -- the server that answers is the one that is written
"""


def as_move(row: Any) -> Move:
    return Move(row.server_run, row.last_move, row.new_tags_above, row.moved_at)


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


def as_read(connection: Connection, dialect: Dialect, known: Shard) -> TextClause:
    """`FENCE` as a condition of another statement."""
    return filled(FENCE, run=run_of(connection), lasting=dialect.lasting).bindparams(**known_as(known))


def text_of(taken: Iterable[int]) -> str:
    return ",".join(map(str, taken))


def lock_row(connection: Connection, dialect: Dialect, waits: bool) -> bool:
    """Lock the shard's row, by a statement of its own. False where it is locked, unless this `waits`."""
    lock = dialect.locks.update if waits else dialect.locks.at_once
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
        statement = filled(MOVE, run=run_of(connection))
        moved = connection.execute(statement, {**known_as(before), **after._asdict()}).rowcount
        if moved:
            dialect.skip_nodes(connection, before.residue, skip.nodes)
        if moved and before.tickets == REPLACE:
            tickets.skip(connection, dialect, skip.tickets)
    return bool(moved)
