"""The row of `allocator_shard`: read and made, and changed by the commands that make and extend a fleet."""

from __future__ import annotations

from dataclasses import replace
from secrets import randbits
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, exists, func, insert, inspect, select, update

from allocator.database.dialect import NOWHERE, Dialect, inserting, run_of
from allocator.database.driver_errors import FORBIDDEN, meaning
from allocator.database.tables import lease, node, segment, shard, ticket
from allocator.database.verbs import segments, tickets, worker_number_rows
from allocator.database.verbs.moves import as_move, as_read, columns_of, lock_row, text_of
from allocator.errors import DatabaseRefused, SchemaDamaged, ShardMisconfigured
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag, is_of_tickets
from allocator.schemes.ticket import CLAIM, REPLACE
from allocator.schemes.worker_number_lease import NumberRow

BEGIN = """
{insert} allocator_shard (
    id, fleet, slot, slots, taken, taken_under, taken_for, tickets, server_run, move, new_tags_above, moved_at, made
) VALUES (1, '', 1, 1, '', :key, 0, :tickets, {run}, :key, 0, 0, 0)
{or_nothing}
"""
"""The row of a single database."""


def fetch(connection: Connection, dialect: Dialect) -> Shard | None:
    row = connection.execute(select(*shard.c, shard.c.move.label("last_move"))).first()
    return as_shard(row) if row else None


def fetch_if_made(connection: Connection, dialect: Dialect) -> Shard | None:
    """Fetch the row; None also where its table is missing."""
    return fetch(connection, dialect) if inspect(connection).has_table(shard.name) else None


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
    connection.execute(inserting(BEGIN, connection, dialect), row)


def has_ids(connection: Connection, dialect: Dialect) -> bool:
    """Whether the database has a tag, or ever gave a ticket, a node or a worker number."""
    others = (select(segment), select(lease), select(node).where(node.c.process != 0))  # 0 marks a skipped number
    return tickets.has_any(connection, dialect) or any(connection.scalar(select(exists(other))) for other in others)


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


def make(connection: Connection, dialect: Dialect, known: Shard, fleet: str, slots: int, at: int) -> bool:
    """Make the database slot 1 of a new fleet; False if its row is not as `known`.

    Every tag skips the gap of the last move first, since a new slot begins above what the rows say. Raises
    `ServerReplaced` where one may not skip it.
    """
    lock_row(connection, dialect, waits=True)
    row = {"fleet": fleet, "slots": slots, "taken": "1", "taken_under": known.move.key}
    if connection.execute(update(shard).where(as_read(connection, dialect, known)).values(row)).rowcount != 1:
        return False
    segments.cross_all(connection, dialect, known.move, at)
    # What was given alone counts S times from now on, as what a slot gives: gaps are in proportion to it.
    given = segment.c.max_value - segment.c.skipped
    skipped = case((given < MAX_ID // slots, segment.c.max_value - slots * given), else_=segment.c.max_value - MAX_ID)
    connection.execute(update(segment).values(skipped=skipped))
    connection.execute(update(segment).where(segment.c.shard_step != 0).values(shard_step=slots))
    return True


def take_slot(connection: Connection, dialect: Dialect, known: Shard, mark: Shard) -> bool:
    """Write which slots are taken into a member; False if its row is not as `known`."""
    row = {"taken": text_of(mark.taken), "taken_under": mark.taken_under, "taken_for": mark.taken_for}
    return connection.execute(update(shard).where(as_read(connection, dialect, known)).values(row)).rowcount == 1


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
    if connection.scalar(select(shard.c.id).where(as_read(connection, dialect, known))) is None:
        return None
    return Given(tags, spaces, nodes, replaced, last, known.move.first_value)


def join(connection: Connection, dialect: Dialect, known: Shard, new: Shard, given: Given) -> bool:
    """Make a new database the slot that `new` says; False if its row is not as `known`. Raises if it is not empty.

    What it numbers begins above what was given. A row with an explicit number raises a counter: ALTER would commit.
    """
    lock_row(connection, dialect, waits=True)
    if known.fleet or has_ids(connection, dialect):
        raise ShardMisconfigured("a database that is added must be new and empty, and this one has given ids")
    residue = {"slot": new.residue.offset, "slots": new.residue.step}
    row = {"fleet": new.fleet, "taken": text_of(new.taken), "taken_under": new.taken_under, **residue}
    row |= columns_of(new.move)
    if connection.execute(update(shard).where(as_read(connection, dialect, known)).values(row)).rowcount != 1:
        return False
    rows = [segments.row_of(tag, new) | {"move": new.move.key if tag.move else 0} for tag in given.tags]
    if rows:
        connection.execute(insert(segment), rows)
    worker_number_rows.begin(connection, dialect, given.spaces, new.residue)
    if given.nodes:
        dialect.skip_nodes(connection, new.residue, given.nodes)
    if given.tickets and known.tickets == REPLACE:
        tickets.skip(connection, dialect, given.tickets)
    return True


def as_shard(row: Any) -> Shard:
    taken = tuple(map(int, row.taken.split(","))) if row.taken else ()
    residue = Residue(row.slot, row.slots)
    return Shard(row.fleet, residue, taken, row.taken_under, row.taken_for, row.tickets, as_move(row))
