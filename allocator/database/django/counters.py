"""Read and raise the database's own counter of a Django table, which counts deleted rows too.

This uses Django's connection, to be part of the migration's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allocator.errors import InvalidDatabase

RAISE = {
    "sqlite": (
        "DELETE FROM sqlite_sequence WHERE name = %(table)s",
        "INSERT INTO sqlite_sequence (name, seq) VALUES (%(table)s, %(value)s)",
    ),
    "postgresql": ("SELECT setval(pg_get_serial_sequence(%(quoted)s, %(column)s), %(value)s)",),
    "mysql": ("ALTER TABLE {quoted} AUTO_INCREMENT = {following}",),
}


def read_counter(connection: Any, table: str, column: str) -> int | None:
    """The greatest value that the counter may have given; None without a counter.

    connection: Django's. On PostgreSQL this locks the table until the transaction ends, so that no value follows.
    """
    if connection.vendor not in READ:
        raise InvalidDatabase(
            f"the counter of a table can be read on {', '.join(READ)}, and not on {connection.vendor}"
        )
    with connection.cursor() as cursor:
        return READ[connection.vendor](connection, cursor, table, column)


def read_sqlite(connection: Any, cursor: Any, table: str, column: str) -> int | None:
    return counters_of(connection).get(table)


def read_postgresql(connection: Any, cursor: Any, table: str, column: str) -> int | None:
    quoted = connection.ops.quote_name(table)
    if connection.in_atomic_block:
        cursor.execute(f"LOCK TABLE {quoted} IN ACCESS EXCLUSIVE MODE")
    cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [quoted, column])
    name = cursor.fetchone()[0]  # with its quotes
    if name is None:
        return None
    cursor.execute(f"SELECT last_value, is_called FROM {name}")
    value, is_called = cursor.fetchone()
    return int(value) if is_called else int(value) - 1


def read_mysql(connection: Any, cursor: Any, table: str, column: str) -> int | None:
    if not connection.mysql_is_mariadb:
        cursor.execute("SET SESSION information_schema_stats_expiry = 0")  # else the number may be a day old
    cursor.execute(
        "SELECT t.auto_increment FROM information_schema.columns c JOIN information_schema.tables t "
        "USING (table_schema, table_name) WHERE c.table_schema = database() AND c.table_name = %s "
        "AND c.column_name = %s AND c.extra LIKE '%%auto_increment%%'",
        [table, column],
    )
    row = cursor.fetchone()
    return None if row is None else int(row[0] or 1) - 1  # NULL before the first row


READ = {"sqlite": read_sqlite, "postgresql": read_postgresql, "mysql": read_mysql}


def raise_counter(connection: Any, table: str, column: str, value: int) -> None:
    """Raise the counter to `value`, at least 1 and at least the greatest value in the table."""
    quoted = connection.ops.quote_name(table)
    given = {"table": table, "quoted": quoted, "column": column, "value": value}
    with connection.cursor() as cursor:
        for statement in RAISE[connection.vendor]:
            cursor.execute(statement.format(quoted=quoted, following=value + 1), given)


@contextmanager
def keeping_counters(connection: Any) -> Iterator[None]:
    """Keep the counters of all tables of SQLite through an alteration.

    Django makes each table anew that refers to the altered one, and the new table counts from its greatest row.
    """
    counters = counters_of(connection) if connection.vendor == "sqlite" else {}
    yield
    after = counters_of(connection) if counters else {}
    for table, value in counters.items():
        if after.get(table, value) < value:
            raise_counter(connection, table, "", value)


def counters_of(connection: Any) -> dict[str, int]:
    """The counter of each table that has one; 0 before its first row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")
        if not cursor.fetchone():  # no table has had a counter
            return {}
        cursor.execute(
            "SELECT t.name, coalesce(s.seq, 0) FROM sqlite_master t LEFT JOIN sqlite_sequence s USING (name) "
            "WHERE t.type = 'table' AND t.sql LIKE '%AUTOINCREMENT%'"
        )
        return {str(name): int(value) for name, value in cursor.fetchall()}
