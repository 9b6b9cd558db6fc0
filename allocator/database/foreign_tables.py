"""The tables of other id servers, Leaf and tinyid: read, never written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, TableClause, column, select, table

from allocator.database.connection import inspector_of
from allocator.database.dialect import Dialect
from allocator.errors import SchemaOutOfDate
from allocator.rules.leaf_tinyid import LeafRow, TinyidRow

LEAF = table("leaf_alloc", column("biz_tag"), column("max_id"), column("step"))
TINYID = table(
    "tiny_id_info", column("biz_type"), column("max_id"), column("step"), column("delta"), column("remainder")
)


def read_leaf(connection: Connection, dialect: Dialect, where: str) -> list[LeafRow] | None:
    """All rows, None where there is no such table."""
    rows = rows_of(connection, LEAF, where)
    return None if rows is None else [LeafRow(*row) for row in rows]


def read_tinyid(connection: Connection, dialect: Dialect, where: str) -> list[TinyidRow] | None:
    """All rows, None where there is no such table."""
    rows = rows_of(connection, TINYID, where)
    return None if rows is None else [TinyidRow(*row) for row in rows]


def rows_of(connection: Connection, source: TableClause, where: str) -> Sequence[Any] | None:
    inspector = inspector_of(connection)
    if not inspector.has_table(source.name):
        return None
    present = {part["name"].lower() for part in inspector.get_columns(source.name)}
    missing = [part.name for part in source.columns if part.name not in present]
    if missing:
        raise SchemaOutOfDate(f"{source.name} in {where} has no column {', '.join(missing)}: it is another table")
    return connection.execute(select(source)).all()
