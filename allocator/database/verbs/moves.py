"""The move of a database to another server run: the columns of `allocator_shard` that a failover changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, literal_column, text, update

from allocator.database.dialect import Dialect, run_of, transaction
from allocator.database.tables import shard
from allocator.database.verbs import tickets
from allocator.schemes.failover import Move, Skipped
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.ticket import REPLACE

COLUMNS = {
    "run": "server_run",
    "key": "move",
    "first_value": "new_tags_above",
    "at": "moved_at",
}
"""Of the fields of `Move`."""


def as_move(row: Any) -> Move:
    return Move(row.server_run, row.last_move, row.new_tags_above, row.moved_at)


def columns_of(move: Move) -> dict[str, object]:
    return {COLUMNS[name]: value for name, value in move._asdict().items()}


def as_read(connection: Connection, dialect: Dialect, known: Shard) -> list[ColumnElement[Any] | TextClause]:
    """The fence of a statement: the row as it was read, on the server run that it names, and a commit that lasts."""
    fleet = (shard.c.fleet == known.fleet, shard.c.taken == text_of(known.taken))
    slot = slot_as(known.residue)
    return [*known_as(known.move), *slot, *fleet, here(connection, known.move.run), text(dialect.lasting)]


def text_of(taken: Iterable[int]) -> str:
    return ",".join(map(str, taken))


def known_as(known: Move) -> list[ColumnElement[Any]]:
    columns = (shard.c.server_run == known.run, shard.c.move == known.key, shard.c.new_tags_above == known.first_value)
    return [shard.c.id == 1, *columns]


def slot_as(known: Residue) -> list[ColumnElement[Any]]:
    return [shard.c.slot == known.offset, shard.c.slots == known.step]


def here(connection: Connection, run: str) -> ColumnElement[Any]:
    return literal_column(run_of(connection), shard.c.server_run.type) == run


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
        as_it_was = (*known_as(before.move), *slot_as(before.residue), here(connection, after.run))
        moved = connection.execute(update(shard).where(*as_it_was).values(columns_of(after))).rowcount
        if moved:
            dialect.skip_nodes(connection, before.residue, skip.nodes)
        if moved and before.tickets == REPLACE:
            tickets.skip(connection, dialect, skip.tickets)
    return bool(moved)
