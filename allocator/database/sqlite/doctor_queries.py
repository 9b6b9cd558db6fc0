"""The questions to SQLite, and the facts of the application's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnClause, Connection, column, func, select, table, text
from sqlalchemy.exc import DBAPIError

from allocator.database.columns.integer_keys import KeyQueries
from allocator.database.doctor_queries.questions import Facts, Question, listed, named, rows
from allocator.database.doctor_queries.table_shape import NUMBERED, TAG_COLUMNS
from allocator.database.schema.tables import metadata
from allocator.errors import InvalidSetting
from allocator.rules.takeover_ranges import ColumnFacts, Remedy
from allocator.schemes.shared.argument_checks import MAX_ID


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


KEYS = KeyQueries("""
SELECT 'main', m.name, p.name, p.type, NULL, NULL, 1 FROM sqlite_master m JOIN pragma_table_info(m.name) p
WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND p.pk = 1 AND upper(p.type) LIKE '%INT%'
  AND COALESCE(:schema, 'main') = 'main'
""")
COLUMN = """
SELECT m.name AS tbl, p.name AS col, p.type AS type, upper(m.sql) LIKE '%AUTOINCREMENT%' AND p.pk = 1 AS counts,
       upper(p.type) = 'INTEGER' AND p.pk = 1 OR EXISTS (
           SELECT 1 FROM pragma_index_list(m.name) l JOIN pragma_index_info(l.name) i
           WHERE l.partial = 0 AND i.seqno = 0 AND i.name = p.name) AS is_indexed
FROM sqlite_master m JOIN pragma_table_info(m.name) p
WHERE m.type = 'table' AND lower(m.name) = lower(:table) AND lower(p.name) = lower(:column)
"""


def fetch_facts(connection: Connection, schema: str, name: str, part: str) -> ColumnFacts:
    """Fetch the facts of a column; a file has one schema. Raises `InvalidSetting` if there is no such column.

    Only AUTOINCREMENT is a generator: other keys continue after the greatest row, whoever wrote it.
    """
    found = connection.execute(text(COLUMN), {"table": name, "column": part}).mappings().first()
    if found is None:
        raise InvalidSetting(f"there is no table with a column {name}.{part}")
    key: ColumnClause[Any] = column(found["col"])
    is_whole = "INT" in found["type"].upper()
    greatest = 0
    if is_whole and found["is_indexed"]:
        greatest = connection.scalar(select(func.max(key)).select_from(table(found["tbl"]))) or 0
    written = select(text("*")).select_from(table(found["tbl"])).where(text(f"{key} BETWEEN {{low}} AND {{high}}"))
    return ColumnFacts(
        f"main.{found['tbl']}.{found['col']}",
        found["type"],
        MAX_ID,
        greatest,
        is_whole=is_whole and type(greatest) is int,
        is_indexed=bool(found["is_indexed"]),
        generates="AUTOINCREMENT" * bool(found["counts"]),
        remedy=Remedy(find=" ".join(str(written).split())),
    )
