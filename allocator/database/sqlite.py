"""SQLite, the embedded default: only what differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, text
from sqlalchemy.dialects.sqlite import insert

from allocator.database.dialect import RAISED, Dialect, claiming, only_row
from allocator.database.tables import segment, worker
from allocator.errors import DatabaseRefused, MaxValueWentBack, SchemaDamaged, SchemaOutOfDate

CLAIM = claiming(RAISED).returning(segment.c.max_value)


class SQLite(Dialect):
    name = "sqlite"
    default_driver = "pysqlite"
    extra = ""
    insert_missing = insert(segment).on_conflict_do_nothing()
    insert_missing_worker = insert(worker).on_conflict_do_nothing()
    embedded = True
    pool_size = 1  # one writer at a time is SQLite's own rule; a database in memory is one connection
    errors = {
        "SQLITE_CONSTRAINT_PRIMARYKEY": MaxValueWentBack,
        "SQLITE_CONSTRAINT_UNIQUE": MaxValueWentBack,
        "SQLITE_CANTOPEN": DatabaseRefused,
        "SQLITE_NOTADB": DatabaseRefused,
        "SQLITE_READONLY": DatabaseRefused,
        "no such table": SchemaOutOfDate,
        "no such column": SchemaOutOfDate,
        "SQLITE_CONSTRAINT_CHECK": SchemaDamaged,
    }

    def connect_args(self, timeout: float) -> dict[str, Any]:
        return {"timeout": timeout, "check_same_thread": False}

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        # A commit must survive a power cut: FULL in WAL mode, and with a rollback journal EXTRA.
        connection.execute("PRAGMA synchronous = EXTRA").close()

    def code(self, error: BaseException) -> str:
        words = str(error)
        for missing in ("no such table", "no such column"):
            if words.startswith(missing):
                return missing
        return getattr(error, "sqlite_errorname", "")

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")

    def triggers(self, connection: Connection, table_name: str) -> list[str]:
        named = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :name")
        return list(connection.scalars(named, {"name": table_name}))

    def claim_segment(self, connection: Connection, name: str, size: int, seen: int) -> int | None:
        # The statement commits when its last row has been fetched, which `all` does.
        return only_row(connection.execute(CLAIM, {"name": name, "size": size, "seen": seen}).all(), name)

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.max(value, other)
