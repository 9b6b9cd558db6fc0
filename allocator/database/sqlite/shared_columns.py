"""A column that holds the ids of a tag, as the catalogue of SQLite describes it."""

from __future__ import annotations

from sqlalchemy import Connection, text

from allocator.database.columns.tag_columns import Found
from allocator.rules.tag_column import Generator

COLUMN = """
SELECT 'main', m.name, p.name, p.type, upper(p.type) LIKE '%INT%' AS is_whole,
       upper(p.type) = 'INTEGER' AND p.pk = 1 OR EXISTS (
           SELECT 1 FROM pragma_index_list(m.name) l JOIN pragma_index_info(l.name) i
           WHERE l.partial = 0 AND i.seqno = 0 AND i.name = p.name) AS is_indexed,
       upper(m.sql) LIKE '%AUTOINCREMENT%' AND p.pk = 1 AS counts
FROM sqlite_master m JOIN pragma_table_info(m.name) p
WHERE m.type = 'table' AND lower(m.name) = lower(:table) AND lower(p.name) = lower(:column)
"""


def fetch_column(connection: Connection, schema: str, table: str, column: str) -> Found | None:
    """Fetch a column; a file has one schema.

    Only AUTOINCREMENT is a generator: other keys continue after the greatest row, whoever wrote it.
    """
    row = connection.execute(text(COLUMN), {"table": table, "column": column}).first()
    if row is None:
        return None
    return Found._make((*row[:6], (counter_of(connection, row[1]),) if row.counts else ()))


def counter_of(connection: Connection, table_name: str) -> Generator:
    last = connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table_name})
    return Generator("AUTOINCREMENT", next=(last or 0) + 1)
