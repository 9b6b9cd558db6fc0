"""The integer keys of the host's own tables, by the catalogues, and the greatest value of each, by its index alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, column, func, select, table, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from allocator.database.address import Address
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_forbidden, translate
from allocator.database.tables import VERSION_TABLE, metadata
from allocator.database.verbs.number_columns import PATIENCE, engine_for
from allocator.rules.column_limit import limit_of
from allocator.rules.key_columns import KeyColumn
from allocator.schemes.shared.argument_checks import MAX_ID

OURS = frozenset({*metadata.tables, VERSION_TABLE})


class Found(NamedTuple):
    """A key by the catalogues. given: the last value of its sequence; ends: the sequence's greatest one."""

    schema: str
    table: str
    column: str
    type: str
    given: int | None = None
    ends: int | None = None
    may_read: bool = True


class Reference(NamedTuple):
    """A foreign key of one column, and the key that it references."""

    schema: str
    table: str
    column: str
    type: str
    to_schema: str
    to_table: str
    to_column: str


WHOLE = """
WITH RECURSIVE whole AS (
    SELECT oid, format_type(oid, NULL) AS type FROM pg_type
    WHERE oid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
    UNION ALL SELECT pg_type.oid, whole.type FROM pg_type JOIN whole ON typbasetype = whole.oid
)"""
"""The types of PostgreSQL that hold whole numbers, domains over them too."""
KEYS_OF_POSTGRESQL = f"""{WHOLE}, counter AS (
    SELECT refobjid AS relid, refobjsubid AS attnum, objid AS seqrelid FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND deptype IN ('a', 'i')
    UNION SELECT adrelid, adnum, refobjid FROM pg_attrdef JOIN pg_depend ON objid = pg_attrdef.oid
    WHERE classid = 'pg_attrdef'::regclass AND refclassid = 'pg_class'::regclass
), ended AS (
    SELECT relid, attnum, min(CASE WHEN NOT seqcycle THEN seqmax END) AS ends,
           max(CASE WHEN has_sequence_privilege(seqrelid, 'USAGE, SELECT')
               THEN pg_sequence_last_value(seqrelid) END) AS given
    FROM counter JOIN pg_sequence USING (seqrelid) WHERE seqincrement > 0 GROUP BY relid, attnum
)
SELECT nspname, relname, attname, whole.type, given, ends,
       has_column_privilege(pg_class.oid, pg_attribute.attnum, 'SELECT')
FROM pg_index JOIN pg_class ON pg_class.oid = indrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = indrelid AND pg_attribute.attnum = indkey[0] JOIN whole ON whole.oid = atttypid
LEFT JOIN ended ON relid = indrelid AND ended.attnum = pg_attribute.attnum
WHERE indisprimary AND relkind IN ('r', 'p') AND NOT relispartition AND relpersistence <> 't'
  AND nspname NOT IN ('pg_catalog', 'information_schema') AND nspname = COALESCE(:schema, nspname)
"""
REFERENCES_OF_POSTGRESQL = f"""{WHOLE}
SELECT ours.nspname, part.relname, own.attname, whole.type, theirs.nspname, target.relname, other.attname
FROM pg_constraint CROSS JOIN LATERAL ROWS FROM (unnest(conkey), unnest(confkey)) AS pair(mine, yours)
JOIN pg_class part ON part.oid = conrelid JOIN pg_namespace ours ON ours.oid = part.relnamespace
JOIN pg_class target ON target.oid = confrelid JOIN pg_namespace theirs ON theirs.oid = target.relnamespace
JOIN pg_attribute own ON own.attrelid = conrelid AND own.attnum = mine JOIN whole ON whole.oid = own.atttypid
JOIN pg_attribute other ON other.attrelid = confrelid AND other.attnum = yours
WHERE contype = 'f' AND conparentid = 0 AND ours.nspname = COALESCE(:schema, ours.nspname)
"""
KEYS_OF_MYSQL = """
SELECT c.table_schema, c.table_name, c.column_name, c.column_type, t.auto_increment - 1, NULL, 1
FROM information_schema.statistics s
JOIN information_schema.columns c ON c.table_schema = s.table_schema AND c.table_name = s.table_name
 AND c.column_name = s.column_name
JOIN information_schema.tables t ON t.table_schema = s.table_schema AND t.table_name = s.table_name
WHERE s.index_name = 'PRIMARY' AND s.seq_in_index = 1 AND t.table_type = 'BASE TABLE'
  AND c.data_type IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')
  AND s.table_schema = COALESCE(:schema, DATABASE())
"""
REFERENCES_OF_MYSQL = """
SELECT k.table_schema, k.table_name, k.column_name, c.column_type,
       k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name
FROM information_schema.key_column_usage k
JOIN information_schema.columns c ON c.table_schema = k.table_schema AND c.table_name = k.table_name
 AND c.column_name = k.column_name
WHERE k.referenced_table_name IS NOT NULL AND k.table_schema = COALESCE(:schema, DATABASE())
"""
KEYS_OF_SQLITE = """
SELECT 'main', m.name, p.name, p.type, NULL, NULL, 1 FROM sqlite_master m JOIN pragma_table_info(m.name) p
WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' AND p.pk = 1 AND upper(p.type) LIKE '%INT%'
  AND COALESCE(:schema, 'main') = 'main'
"""
QUERIES: Mapping[str, tuple[str, str]] = {
    "postgresql": (KEYS_OF_POSTGRESQL, REFERENCES_OF_POSTGRESQL),
    "mysql": (KEYS_OF_MYSQL, REFERENCES_OF_MYSQL),
    "sqlite": (KEYS_OF_SQLITE, ""),
}
"""By the name of the dialect. On SQLite every integer has 64 bits, so no foreign key is narrower."""
BY_INDEX: Mapping[str, str] = {
    "postgresql": "SET enable_seqscan = off",  # a small table is read faster than its index
    "mysql": "SET @allocator_mysql_8 = 1 /*!80000 , SESSION information_schema_stats_expiry = 0 */",  # else a day old
}


def read_keys(address: Address, schema: str | None = None) -> list[KeyColumn]:
    """The integer keys of a schema: by default all of PostgreSQL's, and those of the database on MySQL and MariaDB.

    Raises what the database's errors mean.
    """
    engine, dialect = engine_for(address), address.dialect
    keys, references = QUERIES[dialect.name]
    asked = {"schema": schema}
    try:
        with engine.connect() as connection:
            prepare(connection, BY_INDEX.get(dialect.name, ""))
            found = [one for row in connection.execute(text(keys), asked) if (one := Found(*row)).table not in OURS]
            refers = [Reference(*row) for row in connection.execute(text(references), asked)] if references else []
            return with_narrow([key_of(connection, dialect, one) for one in found], found, dialect, refers)
    except SQLAlchemyError as error:
        raise translate(error, dialect, address.shown, PATIENCE) from error
    finally:
        engine.dispose()


def prepare(connection: Connection, words: str) -> None:
    """MariaDB has no such setting, needs none, and takes what is between the stars for a comment."""
    try:
        if words:
            connection.exec_driver_sql(words)
    except DBAPIError:
        connection.rollback()


def key_of(connection: Connection, dialect: Dialect, found: Found) -> KeyColumn:
    stored = greatest_of(connection, dialect, found) if found.may_read else None
    known = [int(value) for value in (stored, found.given) if value is not None]
    limit = limit_in(dialect, found.type)
    greatest = max(known) if known else None
    ends, shown = min(limit, found.ends or limit), f"{found.schema}.{found.table}"
    return KeyColumn(shown, found.column, found.type, ends, greatest, by_sequence=ends < limit)


def greatest_of(connection: Connection, dialect: Dialect, found: Found) -> int | None:
    """0 for an empty table, None for one that this user may not read."""
    source = table(found.table, column(found.column), schema=found.schema)
    try:
        return connection.scalar(select(func.max(source.c[found.column]))) or 0
    except DBAPIError as error:
        if not is_forbidden(error, dialect):
            raise
        return None


def limit_in(dialect: Dialect, kind: str) -> int:
    return MAX_ID if dialect.embedded else limit_of(kind)


def with_narrow(
    keys: Sequence[KeyColumn], found: Sequence[Found], dialect: Dialect, references: Sequence[Reference]
) -> list[KeyColumn]:
    """Add the foreign keys that hold less than the key that they reference."""
    known = {(one.schema, one.table, one.column): key for one, key in zip(found, keys, strict=True)}
    narrow = []
    for one in references:
        key = known.get((one.to_schema, one.to_table, one.to_column))
        limit = limit_in(dialect, one.type)
        if key is not None and limit < limit_in(dialect, key.type):
            narrow.append(KeyColumn(f"{one.schema}.{one.table}", one.column, one.type, limit, key.greatest, key.name))
    return [*keys, *narrow]
