"""MySQL and MariaDB, by PyMySQL: only what differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

from sqlalchemy import Connection, func, text
from sqlalchemy.dialects.mysql import insert

from allocator.database.dialect import MAX_CONNECT_SECONDS, RAISED, Dialect, claiming
from allocator.database.tables import segment, worker
from allocator.errors import DatabaseRefused, DatabaseUnavailable, MaxValueWentBack, SchemaDamaged, SchemaOutOfDate
from allocator.schemes.tag import damaged

CLAIM = claiming(func.last_insert_id(RAISED))
SCHEMA_LOCK = "allocator_schema_change"

SESSION = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), innodb_lock_wait_timeout = {seconds}"
"""Without the strict mode a column that became too small clips the value, and every claim gets the same ids."""


class MySQL(Dialect):
    name = "mysql"
    default_driver = "pymysql"
    extra = "mysql"
    needs_name = True
    insert_missing = insert(segment).prefix_with("IGNORE")
    insert_missing_worker = insert(worker).prefix_with("IGNORE")
    contended = frozenset({"1213", "1205", "1020"})
    errors = {
        "1062": MaxValueWentBack,
        "1044": DatabaseRefused,
        "1045": DatabaseRefused,
        "1049": DatabaseRefused,
        "1142": DatabaseRefused,
        "1698": DatabaseRefused,
        "1054": SchemaOutOfDate,
        "1146": SchemaOutOfDate,
        "1264": SchemaDamaged,
        "1690": SchemaDamaged,
        "3819": SchemaDamaged,
        "4025": SchemaDamaged,
    }

    def connect_args(self, timeout: float) -> dict[str, Any]:
        return {"connect_timeout": ceil(min(timeout, MAX_CONNECT_SECONDS))}

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        # Set here and not as arguments, since a connection may come from the user's own engine.
        if hasattr(connection, "_read_timeout"):
            connection._read_timeout = connection._write_timeout = timeout
        with connection.cursor() as cursor:
            cursor.execute(SESSION.format(seconds=ceil(timeout)))

    def code(self, error: BaseException) -> str:
        return str(error.args[0]) if error.args else ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        # DDL commits by itself here, so the lock is the session's and not the transaction's.
        got = connection.scalar(
            text("SELECT GET_LOCK(:name, :seconds)"), {"name": SCHEMA_LOCK, "seconds": ceil(timeout)}
        )
        if got != 1:
            raise DatabaseUnavailable(f"another change of the schema is still running after {timeout:g} seconds")
        try:
            yield
        finally:
            if not connection.invalidated:
                connection.execute(text("DO RELEASE_LOCK(:name)"), {"name": SCHEMA_LOCK})

    def triggers(self, connection: Connection, table_name: str) -> list[str]:
        named = text(
            "SELECT trigger_name FROM information_schema.triggers "
            "WHERE event_object_schema = DATABASE() AND event_object_table = :name"
        )
        return list(connection.scalars(named, {"name": table_name}))

    def claim_segment(self, connection: Connection, name: str, size: int, seen: int) -> int | None:
        result = connection.execute(CLAIM, {"name": name, "size": size, "seen": seen})
        if result.rowcount == 0:
            return None
        if result.rowcount != 1:
            raise damaged(name, f"there are {result.rowcount} rows")
        if getattr(result.context.cursor, "warning_count", 0):
            raise damaged(name, "the claim came with a warning of the server, as when a column is too small")
        if result.lastrowid <= 0:
            raise damaged(name, f"the claim returned {result.lastrowid}, as when the table has a trigger")
        return int(result.lastrowid)
