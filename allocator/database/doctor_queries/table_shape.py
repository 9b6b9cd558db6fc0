"""Defects of the tables, on every database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import CheckConstraint, Connection, Table, inspect

from allocator.database.dialect import Dialect
from allocator.database.schema import inspection
from allocator.database.schema.inspection import strangers
from allocator.database.schema.tables import metadata
from allocator.errors import SchemaOutOfDate
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, few

TAG_COLUMNS = {"allocator_segment": "tag", "allocator_ticket": "type", "allocator_ticket_counter": "type"}
"""The columns that separate number spaces; they must compare byte by byte."""
NUMBERED = ("allocator_ticket", "allocator_node")
"""Their auto-increment values are ids or parts of ids, so the doctor checks that the column still has it."""


def of_schema(connection: Connection, dialect: Dialect, where: str) -> list[Finding]:
    """Findings if tables are missing or of another revision."""
    try:
        inspection.check(connection, where)
    except SchemaOutOfDate as error:
        found, _, mend = str(error).partition("; ")
        if dialect.embedded and mend == inspection.UPGRADE:
            return [Finding("schema-out-of-date", NOTE, found, f"{mend}, or draw an id: then that is done by itself")]
        return [Finding("schema-out-of-date", OUTAGE, found, mend)]
    if lost := inspection.Reflection.of(connection, dialect).lost_tables():
        found, _, mend = lost[0].partition("; ")
        return [Finding("schema-out-of-date", OUTAGE, found, mend)]
    found, _, mend = inspection.lacks_beside(connection, where).partition("; ")
    return [Finding("schema-out-of-date", NOTE, found, mend)] if found else []


def of_tables(connection: Connection, dialect: Dialect) -> list[Finding]:
    """Check the tables, all of which exist."""
    seen = inspection.Reflection.of(connection, dialect)
    return [
        *(finding for table in seen.tables_to_check() for finding in of_shape(seen, table)),
        *of_triggers(connection, dialect),
        *of_checks(connection, seen.tables_to_check()),
    ]


def of_shape(seen: inspection.Reflection, table: Table) -> Iterable[Finding]:
    mend = f"stop what writes {table.name}, and change it to what allocator/database/schema/tables.py says"
    for sentence in inspection.column_damages(seen, table):
        yield Finding("column-type", DANGER, sentence, mend)
    for sentence in inspection.key_damages(seen, table):
        yield Finding("key-missing", DANGER, sentence, f"{mend}; of rows that double, keep the greatest number")
    for sentence in inspection.engine_damages(seen, table):
        yield Finding("engine-without-transactions", DANGER, sentence, f"ALTER TABLE {table.name} ENGINE = InnoDB")


def of_triggers(connection: Connection, dialect: Dialect) -> Iterable[Finding]:
    names = [table.name for table in metadata.sorted_tables]
    found = {f"{one} on {name}": drop for name in names for one, drop in strangers(connection, dialect, name).items()}
    if found:
        mend = "; ".join(found.values())
        yield Finding("trigger", DANGER, f"triggers or rules can change what a claim gets: {few(found)}", mend)


def of_checks(connection: Connection, tables: Iterable[Table]) -> Iterable[Finding]:
    seen = inspection.described(inspect(connection).get_multi_check_constraints)
    for table in tables:
        present = {str(check["name"]) for check in seen[table.name]}
        for check in sorted((one for one in table.constraints if isinstance(one, CheckConstraint)), key=str):
            if check.name not in present:
                yield Finding(
                    "check-missing",
                    NOTE,
                    f"{table.name} lacks the check {check.name}, so that a change by hand may write what no claim "
                    "can use",
                    f"ALTER TABLE {table.name} ADD CONSTRAINT {check.name} CHECK ({check.sqltext})",
                )
