"""The rows of `allocator_node`: numbers registered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, literal, select

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import node, shard
from allocator.database.verbs.moves import unmoved
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.meteor import Node


def register(
    connection: Connection, dialect: Dialect, host: str, process: int, version: str, at: datetime, known: Shard
) -> int | None:
    """Register a node; None if the shard's row is not as `known`. Its number is never given again."""
    values = {"host": host[:255], "process": process, "version": version[:32], "started_at": at}
    fence = (*unmoved(connection, dialect, known.move), shard.c.revision == known.revision)
    row = select(*(literal(value, node.c[name].type) for name, value in values.items())).where(*fence)
    made = insert(node).from_select([*values], row)
    if dialect.has_returning:
        number: int | None = connection.scalar(made.returning(node.c.id))
        return number
    result = connection.execute(made)
    return int(result.lastrowid) if result.rowcount else None


def fetch_newest(connection: Connection, dialect: Dialect, last: int) -> list[Node]:
    return [as_node(row) for row in connection.execute(select(node).order_by(node.c.id.desc()).limit(last))]


def as_node(row: Any) -> Node:
    return Node(row.id, row.host, row.process, row.version, row.started_at.replace(tzinfo=UTC))
