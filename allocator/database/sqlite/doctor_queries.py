"""The questions to SQLite, and the facts of the application's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import DBAPIError

from allocator.database.columns.tag_columns import Found
from allocator.database.doctor_queries.questions import Facts, Question, Tools, listed, named, rows
from allocator.database.doctor_queries.table_shape import NUMBERED, TAG_COLUMNS
from allocator.database.schema.tables import metadata
from allocator.database.sqlite.doctor_rules import RULES
from allocator.rules.tag_column import Generator


def version(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = named(connection, "SELECT sqlite_version() AS version")
    return {**found, "version_number": tuple(map(int, found["version"].split(".")))}


def pragmas(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    return {
        "journal_mode": connection.exec_driver_sql("PRAGMA journal_mode").scalar(),
        "path": next((one[2] for one in connection.exec_driver_sql("PRAGMA database_list") if one[1] == "main"), ""),
    }


def writing(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """Take the write lock and release it."""
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except DBAPIError as error:
        return {"write_refused": str(error.orig)}
    connection.exec_driver_sql("ROLLBACK")
    return {}


def collations(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = [
        f"{name}.{part} has {one.coll}"
        for name, part in TAG_COLUMNS.items()
        for one in rows(
            connection,
            "SELECT coll FROM pragma_index_list(:name) AS listed, pragma_index_xinfo(listed.name) AS part "
            "WHERE part.key = 1 AND part.name = :part AND part.coll <> 'BINARY'",
            name=name,
            part=part,
        )
    ]
    return {"collations": listed(found)}


def numberings(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    made = {one.name: one.sql for one in rows(connection, "SELECT name, sql FROM sqlite_master WHERE type = 'table'")}
    kept = [name for name in NUMBERED if "AUTOINCREMENT" in (made.get(name) or "").upper()]
    return {
        "unnumbered": listed([name for name in NUMBERED if name not in kept]),
        "behind": listed([words for name in kept if (words := behind_by(connection, name))]),
    }


def behind_by(connection: Connection, name: str) -> str:
    greatest = connection.scalar(select(func.max(metadata.tables[name].c.id))) or 0
    found = rows(connection, "SELECT seq FROM sqlite_sequence WHERE name = :name", name=name)
    last = found[0].seq if found else 0
    return f"the counter of {name} is at {last}, and {greatest} is in use" if last < greatest else ""


QUESTIONS = (
    Question("the version", version),
    Question("the journal", pragmas),
    Question("whether it can be written to", writing),
    Question("the collation of tags", collations, of_tables=True),
    Question("the numbering of tickets and nodes", numberings, of_tables=True),
)


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


TOOLS = Tools(QUESTIONS, RULES, fetch_column)
