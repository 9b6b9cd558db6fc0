"""A column that holds the ids of a tag, as the catalogue of MySQL or MariaDB describes it."""

from __future__ import annotations

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from allocator.database.columns.tag_columns import Found
from allocator.rules.tag_column import Generator, may_write

FRESH = "SET @allocator_mysql_8 = 1 /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""Else the counters of tables may be a day old."""


COLUMN = """
SELECT c.table_schema AS db, c.table_name AS tbl, c.column_name AS col, c.column_type AS type,
       c.data_type IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint') AS is_whole,
       EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = c.table_schema
               AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.seq_in_index = 1) AS is_indexed,
       c.extra LIKE '%auto_increment%' AS counts, t.auto_increment AS next, c.column_default AS default_words
FROM information_schema.columns c JOIN information_schema.tables t
  ON t.table_schema = c.table_schema AND t.table_name = c.table_name
 AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
WHERE c.table_schema = COALESCE(NULLIF(:schema, ''), DATABASE()) AND c.table_name = :table AND c.column_name = :column
"""
TRIGGERS = """
SELECT trigger_name, action_statement FROM information_schema.triggers
WHERE event_object_schema = :db AND event_object_table = :tbl AND action_timing = 'BEFORE'
  AND event_manipulation = 'INSERT'
"""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def refresh(connection: Connection) -> None:
    """MariaDB needs no such setting, and reads the text between the stars as a comment."""
    try:
        connection.exec_driver_sql(FRESH)
    except DBAPIError:
        connection.rollback()


def fetch_column(connection: Connection, schema: str, table: str, column: str) -> Found | None:
    refresh(connection)
    asked = {"schema": schema, "table": table, "column": column}
    row = connection.execute(text(COLUMN), asked).first()
    if row is None:
        return None
    triggers = connection.execute(text(TRIGGERS), {"db": row.db, "tbl": row.tbl})
    writing = [
        Generator(f"the trigger {name}", f"DROP TRIGGER {quoted(row.db)}.{quoted(name)}")
        for name, body in triggers
        if may_write(body, column)
    ]
    altered = f"ALTER TABLE {quoted(row.db)}.{quoted(row.tbl)}"
    if row.counts:
        drop, hold = f"{altered} MODIFY {quoted(row.col)} {row.type} NOT NULL", f"{altered} AUTO_INCREMENT = {{n}}"
        writing.append(Generator("AUTO_INCREMENT", drop, int(row.next or 1), hold=hold))
    elif "(" in (row.default_words or ""):
        drop = f"{altered} ALTER {quoted(row.col)} DROP DEFAULT"
        writing.append(Generator(f"DEFAULT {row.default_words}", drop))
    return Found(row.db, row.tbl, row.col, row.type, row.is_whole, row.is_indexed, tuple(writing))
