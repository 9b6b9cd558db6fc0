"""What makes and extends a fleet: a database becomes slot 1, tells what it has given, or joins as another slot."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection, case, func, insert, select, update

from allocator.database.dialect import Dialect
from allocator.database.tables import node, segment, ticket
from allocator.database.verbs import segments, shard_row, tickets, worker_number_rows
from allocator.errors import ShardMisconfigured
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag, is_of_tickets
from allocator.schemes.ticket import REPLACE
from allocator.schemes.worker_number_lease import NumberRow


def make(connection: Connection, dialect: Dialect, known: Shard, fleet: str, slots: int, at: int) -> bool:
    """Make the database slot 1 of a new fleet; False if its row is not as `known`.

    Every tag skips the gap of the last move first, since a new slot begins above what the rows say. Raises
    `ServerReplaced` where one may not skip it.
    """
    shard_row.lock_row(connection, dialect, waits=True)
    row = {"fleet": fleet, "slots": slots, "taken": "1", "taken_under": known.move.key}
    if not shard_row.change(connection, dialect, known, row):
        return False
    segments.cross_all(connection, dialect, known.move, at)
    # An id that was given alone counts as S numbers from now on, as those of a slot do: gaps are in proportion to it.
    given = segment.c.max_value - segment.c.skipped
    skipped = case((given < MAX_ID // slots, segment.c.max_value - slots * given), else_=segment.c.max_value - MAX_ID)
    connection.execute(update(segment).values(skipped=skipped))
    connection.execute(update(segment).where(segment.c.shard_step != 0).values(shard_step=slots))
    return True


def take_slot(connection: Connection, dialect: Dialect, known: Shard, mark: Shard) -> bool:
    """Write which slots are taken into a member; False if its row is not as `known`."""
    row = {"taken": shard_row.text_of(mark.taken), "taken_under": mark.taken_under, "taken_for": mark.taken_for}
    return shard_row.change(connection, dialect, known, row)


class Given(NamedTuple):
    """How far a database has numbered: its tags, nodes and tickets, and the first value of new tags.

    spaces: a row of each space of worker numbers.
    replaced: the last ticket that REPLACE has drawn or skipped; tickets: the last of all types.
    """

    tags: list[Tag]
    spaces: dict[str, NumberRow]
    nodes: int
    replaced: int
    tickets: int
    first_value: int


def fetch_given(connection: Connection, dialect: Dialect, known: Shard) -> Given | None:
    """In a transaction; None if the row is not as `known`. A tag that lacks the gap of the last move has the move 0."""
    tags = [
        tag if tag.move == known.move.key else replace(tag, move=0) for tag in segments.fetch_all(connection, dialect)
    ]
    nodes, replaced = (connection.scalar(select(func.max(one.c.id))) or 0 for one in (node, ticket))
    claimed = (tag.max_value for tag in tags if is_of_tickets(tag.name))
    # It may know tickets of a lost one, or forgotten ones, by its first value alone.
    last = max(replaced, *claimed, known.move.first_value)
    _, leased = worker_number_rows.fetch_all(connection, dialect)
    spaces = {space: rows[0] for space, rows in leased.items()}
    if not connection.scalar(select(shard_row.fence_exists(connection, dialect, known))):
        return None
    return Given(tags, spaces, nodes, replaced, last, known.move.first_value)


def join(connection: Connection, dialect: Dialect, known: Shard, new: Shard, given: Given) -> bool:
    """Make a new database the slot that `new` says; False if its row is not as `known`. Raises if it is not empty.

    What it numbers begins above what was given. A row with an explicit number raises a counter: ALTER would commit.
    """
    shard_row.lock_row(connection, dialect, waits=True)
    if known.fleet or shard_row.has_ids(connection, dialect):
        raise ShardMisconfigured("a database that is added must be new and empty, and this one has given ids")
    residue = {"slot": new.residue.offset, "slots": new.residue.step}
    row = {"fleet": new.fleet, "taken": shard_row.text_of(new.taken), "taken_under": new.taken_under, **residue}
    if not shard_row.change(connection, dialect, known, row | shard_row.columns_of(new.move)):
        return False
    # A tag that lacks the gap of the last move skips it here too.
    rows = [segments.row_of(tag, new) | {"move": new.move.key if tag.move else 0} for tag in given.tags]
    if rows:
        connection.execute(insert(segment), rows)
    worker_number_rows.begin(connection, dialect, given.spaces, new.residue)
    if given.nodes:
        dialect.skip_nodes(connection, new.residue, given.nodes)
    if given.tickets and known.tickets == REPLACE:
        tickets.skip(connection, dialect, given.tickets)
    return True
