"""The rows of `allocator_node`: numbers registered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from allocator.database.dialect import Dialect
from allocator.database.tables import node
from allocator.database.verbs import shard_row
from allocator.schemes.meteor import Node
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.slots import Shard


def register(
    connection: Connection, dialect: Dialect, host: str, process: int, version: str, at: datetime, known: Shard
) -> int | None:
    """Register a node; None if the shard's row is not as `known`. Its number is never given again."""
    dialect.number_as(connection, ALL)  # the session may number the tickets of a slot
    values = {"host": host[:255], "process": process, "version": version[:32], "started_at": at}
    values |= {"slot": known.residue.offset, "slots": known.residue.step}
    made = shard_row.insert_under(connection, dialect, known, node, values, end=dialect.words.share)
    driver: Any = connection.dialect
    if driver.postfetch_lastrowid:
        result = connection.execute(made)
        count = int(result.lastrowid) if result.rowcount else None
    else:
        count = connection.scalar(made.returning(node.c.id))
    return None if count is None else known.residue.nth(count)


def fetch_newest(connection: Connection, dialect: Dialect, last: int) -> list[Node]:
    return [as_node(row) for row in connection.execute(select(node).order_by(node.c.id.desc()).limit(last))]


def as_node(row: Any) -> Node:
    return Node(
        Residue(row.slot, row.slots).nth(row.id), row.host, row.process, row.version, row.started_at.replace(tzinfo=UTC)
    )
