"""The rows of `allocator_node`: numbers registered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, insert, literal, literal_column, select

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import node
from allocator.errors import MaxValueWentBack
from allocator.schemes.meteor import Node


def register(connection: Connection, dialect: Dialect, host: str, process: int, version: str, at: datetime) -> int:
    """Register a node. Its number is unique if it is above all that were known before; see `check_new`."""
    named = lasting(connection, dialect, host[:255])
    values = {"host": named, "process": process, "version": version[:32], "started_at": at}
    key = connection.execute(insert(node).values(values)).inserted_primary_key
    return int(key[0]) if key else 0


def check_new(number: int, known: int) -> int:
    if number <= known:
        raise MaxValueWentBack(
            f"node {number} was registered, but node {known} was known before: the counter of allocator_node was "
            "set back; raise it above the greatest number"
        )
    return number


def fetch_newest(connection: Connection, dialect: Dialect, last: int) -> list[Node]:
    return [as_node(row) for row in connection.execute(select(node).order_by(node.c.id.desc()).limit(last))]


def lasting(connection: Connection, dialect: Dialect, value: str) -> ColumnElement[str]:
    """A value for an INSERT, with the condition `Dialect.lasting` evaluated."""
    return case((literal_column(dialect.lasting(connection)), literal(value)), else_=literal(value))


def as_node(row: Any) -> Node:
    return Node(row.id, row.host, row.process, row.version, row.started_at.replace(tzinfo=UTC))
