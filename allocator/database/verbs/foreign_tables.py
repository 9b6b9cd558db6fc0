"""The tables of other id servers, Leaf and tinyid: read, never written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, TableClause, column, select, table

from allocator.database.connection import inspector_of
from allocator.database.dialect import Dialect
from allocator.errors import SchemaOutOfDate

LEAF = table("leaf_alloc", column("biz_tag"), column("max_id"), column("step"))
TINYID = table(
    "tiny_id_info", column("biz_type"), column("max_id"), column("step"), column("delta"), column("remainder")
)


def read(connection: Connection, dialect: Dialect, source: TableClause, where: str) -> Sequence[Any] | None:
    """All rows, None where there is no such table."""
    inspector = inspector_of(connection)
    if not inspector.has_table(source.name):
        return None
    present = {part["name"].lower() for part in inspector.get_columns(source.name)}
    missing = [part.name for part in source.columns if part.name not in present]
    if missing:
        raise SchemaOutOfDate(f"{source.name} in {where} has no column {', '.join(missing)}: it is another table")
    return connection.execute(select(source)).all()
