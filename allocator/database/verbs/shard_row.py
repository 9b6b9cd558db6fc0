"""The row of `allocator_shard`: read, made, and changed under a lock together with everything that follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from secrets import randbits, token_hex
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, inspect, literal_column, select, update

from allocator.database.dialect import NOWHERE, Dialect, run_of
from allocator.database.driver_errors import FORBIDDEN, meaning
from allocator.database.schema.tables import lease, node, segment, shard, ticket
from allocator.database.verbs import segments, tickets
from allocator.database.verbs.moves import as_move
from allocator.errors import DatabaseRefused, SchemaDamaged, ShardMisconfigured
from allocator.rules.fleet_consistency import ALONE, BEGUN, DEFAULT_FLEET, Member, Shard, Target
from allocator.schemes.tag import Tag, is_of_tickets
from allocator.schemes.ticket import CLAIM, REPLACE, ShardNumbering

Decision = Callable[[Shard, int], Shard | None]
"""Takes a shard's row and its greatest ticket; returns the new row, or None for no change."""


def fetch(connection: Connection, dialect: Dialect) -> Shard | None:
    row = connection.execute(select(shard)).first()
    return as_shard(row) if row else None


def fetch_sure(connection: Connection, dialect: Dialect) -> Shard:
    found = fetch(connection, dialect)
    if found is None:
        raise ShardMisconfigured("the row of allocator_shard is gone; restore it before ids are drawn again")
    return found


def missing(where: str) -> SchemaDamaged:
    return SchemaDamaged(
        f"{where} has no row in allocator_shard, and gives no ids without it; if its tables are new, run: allocator db "
        "upgrade. If not, restore the row from a backup, then run: allocator db mark-restored"
    )


def fetch_if_made(connection: Connection, dialect: Dialect) -> Shard | None:
    """Fetch the row; None also where its table is missing."""
    return fetch(connection, dialect) if inspect(connection).has_table(shard.name) else None


def fetch_member(connection: Connection, dialect: Dialect, alone: bool = False) -> Shard | None:
    """Fetch the row. None also if an upgrade wrote it and nothing was drawn since: then the database may join any
    fleet, or, if only tickets are missing, become another fleet of one."""
    row = fetch(connection, dialect)
    if row is None or not row.is_alone:
        return row
    is_used = tickets.has_any if alone else has_ids
    # Read again: since the first read, another process may have added it to its fleet and drawn.
    return fetch(connection, dialect) if is_used(connection, dialect) else None


def begin_alone(connection: Connection, dialect: Dialect, where: str, url: str) -> None:
    """Write the row of a single database. No change if there is a row. Raises if there was one, as ids show."""
    if fetch(connection, dialect):
        return
    if has_ids(connection, dialect):
        raise missing(where)
    check_writer(connection, dialect)
    ours = Member(token_hex(16), 1, url)
    fresh = Shard(DEFAULT_FLEET, ours.key, True, 1, ShardNumbering(1, 1), ALONE, (ours,))
    insert(connection, dialect, fresh)


def insert(connection: Connection, dialect: Dialect, fresh: Shard) -> None:
    """Write the first row, unless there is one."""
    key = randbits(63)
    first = {"id": 1, "tickets": dialect.tickets(connection), "trusted": key, "move": key}
    first |= dict.fromkeys(("new_tags_above", "moved_at", "made"), 0)
    run: ColumnElement[str] = literal_column(run_of(connection))
    connection.execute(dialect.insert_missing(shard).values({**columns_of(fresh), **first, "server_run": run}))


def has_ids(connection: Connection, dialect: Dialect) -> bool:
    """Whether the database issued ids before it joined a fleet. Nodes and leases count too: the lead of the fleet would
    issue the same ones."""
    others = (select(segment), select(lease), select(node).where(node.c.process != 0))  # 0 marks a skipped number
    return tickets.has_any(connection, dialect) or any(connection.scalar(select(exists(other))) for other in others)


def add(connection: Connection, dialect: Dialect, fresh: Shard, where: str) -> None:
    """Make the row and set the numbering of tickets; no change if there is a row in use.

    where: the URL, for a message.
    """
    with dialect.transaction(connection):
        dialect.lock_shard(connection)
        now = fetch(connection, dialect)
        alone = fresh.numbering.step == 1
        if now is not None and (fresh.is_alone or fetch_member(connection, dialect, alone) is not None):
            return
        if not alone and has_ids(connection, dialect):
            raise ShardMisconfigured(f"{where} has issued ids of its own meanwhile; empty its tables, and retry")
        if now:
            connection.execute(update(shard).values({**columns_of(fresh), "trusted": shard.c.move}))
        else:
            insert(connection, dialect, fresh)


def begin(connection: Connection, dialect: Dialect, key: str) -> None:
    """Mark the fleet as complete: from now on a missing row is lost."""
    connection.execute(update(shard).where(shard.c.shard_key == key, shard.c.revision == 0).values(revision=BEGUN))


def claim_tickets(connection: Connection, dialect: Dialect, where: str) -> None:
    """Draw tickets by claims from now on. Refused where some were drawn by REPLACE, since claims would repeat them."""
    with dialect.transaction(connection):
        dialect.lock_shard(connection)  # draws under way end first
        if fetch_sure(connection, dialect).tickets == CLAIM:
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
    connection: Connection, dialect: Dialect, decide: Decision, tags: Sequence[Tag] = (), trust: bool = False
) -> Shard:
    """Change the row by `decide` while draws are locked out, and adapt tickets and segments. Returns the row.

    tags: all tags as far as any shard has claimed them, for a shard that enters a new generation.
    trust: let its tickets continue after a move.
    """
    with dialect.transaction(connection):
        # Before the greatest ticket is read: draws under way end first, and no other begins.
        dialect.lock_shard(connection)
        now = fetch_sure(connection, dialect)
        greatest = tickets.greatest_ever(connection, dialect, now)
        fresh = decide(now, greatest)
        if fresh is None:
            return now
        values: dict[str, Any] = columns_of(fresh)
        if trust or now.numbering.step == 1:
            values["trusted"] = shard.c.move
        connection.execute(update(shard).values(values))
        begins = fresh.numbering.floor != now.numbering.floor or fresh.generation != now.generation
        if begins and now.tickets == REPLACE:
            tickets.number_from(connection, fresh.numbering.following(greatest))
        if tags or fresh.residue != now.residue:
            raised = [above_floor(tag, fresh) for tag in tags if now.tickets == CLAIM or not is_of_tickets(tag.name)]
            segments.raise_all(connection, dialect, raised, fresh)
        if begins:
            segments.raise_tickets(connection, dialect, fresh.numbering.floor - 1)
        return fresh


def above_floor(tag: Tag, row: Shard) -> Tag:
    """The tag; one of tickets begins at the floor, as those of the other shards do."""
    return replace(tag, max_value=max(tag.max_value, row.numbering.floor - 1)) if is_of_tickets(tag.name) else tag


def check_writer(connection: Connection, dialect: Dialect) -> None:
    """Raise where this user could not write the shard's row."""
    refused = DatabaseRefused(
        "this user may not write allocator_shard, as making or growing a fleet does: use the user that "
        "ran allocator db upgrade; run that again where it was left out"
    )
    with meaning(refused, FORBIDDEN, dialect):
        connection.execute(update(shard).where(shard.c.id == 0).values(revision=0))


def check_owner(connection: Connection, dialect: Dialect) -> None:
    """Raise where this user may not write the shard's row, or the server does not identify itself."""
    if run_of(connection) == NOWHERE and not dialect.embedded:
        raise DatabaseRefused("a fleet needs servers that say which one they are: see allocator doctor")
    check_writer(connection, dialect)


def as_shard(row: Any) -> Shard:
    return Shard(
        row.fleet,
        row.shard_key,
        row.shard_step == 1 or row.trusted == row.move,
        row.generation,
        ShardNumbering(row.shard_offset, row.shard_step, row.floor, row.ceiling),
        row.revision,
        members_of(json.loads(row.members)),
        target_of(row.target),
        row.tickets,
        as_move(row),
    )


def members_of(listed: list[dict[str, Any]]) -> tuple[Member, ...]:
    return tuple(Member(**member) for member in listed)


def target_of(written: str | None) -> Target | None:
    if written is None:
        return None
    parts = json.loads(written)
    return Target(**{**parts, "members": members_of(parts["members"])})


def columns_of(fresh: Shard) -> dict[str, object]:
    """What changes with the fleet: how tickets are drawn here does not."""
    numbering = fresh.numbering
    return {
        "fleet": fresh.fleet,
        "shard_key": fresh.key,
        "generation": fresh.generation,
        "shard_offset": numbering.offset,
        "shard_step": numbering.step,
        "floor": numbering.floor,
        "ceiling": numbering.ceiling,
        "revision": fresh.revision,
        "members": json.dumps([asdict(member) for member in fresh.members]),
        "target": json.dumps(asdict(fresh.target)) if fresh.target else None,
    }
