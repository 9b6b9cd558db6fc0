"""SQLite, the embedded default: only what differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, func, text
from sqlalchemy.dialects.sqlite import insert

from allocator.database.dialect import Dialect
from allocator.database.sqlite.error_codes import CODES
from allocator.database.verbs.claims import CLAIMABLE, FIELDS, batch_statement
from allocator.database.verbs.tickets import COUNT, FENCE
from allocator.errors import DatabaseUnavailable, InvalidDatabase

if TYPE_CHECKING:
    from allocator.database.operator_tools import Tools
    from allocator.database.verbs.gapless_number_rows import NumberDialect

FROM_JSON = ", ".join(f"json_extract(value, '$.{field}') AS {field}" for field in FIELDS)
CLAIM_BATCH = (
    "UPDATE allocator_segment AS s SET max_value = s.max_value + w.span, claimed_at = {clock} "
    f"FROM (SELECT {FROM_JSON} FROM json_each(:wanted)) AS w "
    f"WHERE {CLAIMABLE} RETURNING tag, max_value"
)

NEXT_TICKET = "max(:floor, 1 + coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'allocator_ticket'), 0))"
REPLACE = (
    "REPLACE INTO allocator_ticket (type, id) "
    f"SELECT :type, {NEXT_TICKET} + ((:offset - {NEXT_TICKET}) % :step + :step) % :step {FENCE} RETURNING id"
)
"""AUTOINCREMENT remembers the greatest id; arithmetic finds the next one of this shard."""


def is_for_all_threads(connection: Any) -> bool:
    """Whether any thread may use the connection, which the driver checks only when another thread does."""
    refused: list[Exception] = []

    def ask() -> None:
        try:
            connection.commit()
        except Exception as error:
            refused.append(error)

    asking = Thread(target=ask)
    asking.start()
    asking.join()
    return not refused


def inode_of(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116  # a claim asks, and a Path is six times as slow
    except FileNotFoundError:
        raise DatabaseUnavailable(f"there is no file {path}: it was moved or deleted; put it back") from None
    return found.st_dev, found.st_ino


class SQLite(Dialect):
    name = "sqlite"
    default_driver = "pysqlite"
    extra = ""
    embedded = looks_first = checks_tag_first = True
    columns_have_types = False
    begin = "BEGIN IMMEDIATE"
    replace_ticket, count_ticket = REPLACE, COUNT
    clock = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    trigger_names = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :name"
    sound = "(SELECT group_concat(name) FROM pragma_table_info('allocator_ticket') WHERE pk > 0) = 'id'"
    """Without this key AUTOINCREMENT is gone too, and each process would draw the first ticket."""
    pool_size = 1  # SQLite allows one writer; a database in memory is one connection
    codes = CODES

    def tools(self) -> Tools:
        from allocator.database.operator_tools import Tools
        from allocator.database.sqlite import doctor_queries as asked
        from allocator.database.sqlite import doctor_rules, hardening

        return Tools(hardening.GUARD, asked.QUESTIONS, doctor_rules.RULES, asked.KEYS, asked.fetch_column)

    def numbers(self, is_mariadb: bool) -> NumberDialect:
        from allocator.database.sqlite.gapless_draws import SQLiteNumbers

        return SQLiteNumbers(self)

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        return {"timeout": timeout, "check_same_thread": False}

    def on_given(self, connection: Any) -> None:
        super().on_given(connection)
        if not is_for_all_threads(connection):
            connection.close()
            raise InvalidDatabase(
                "a connection of this engine is for the thread that made it; give the URL, or make the engine with "
                "connect_args={'check_same_thread': False}"
            )

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        # A commit must survive a power cut. That needs FULL in WAL mode, and EXTRA with a rollback journal.
        connection.execute("PRAGMA synchronous = EXTRA").close()
        if "path" not in info:
            with closing(connection.execute("PRAGMA database_list")) as listed:
                info["path"] = next((str(path) for _, name, path in listed.fetchall() if name == "main"), "")
        if info["path"]:
            _, inode = info["inode"] = inode_of(info["path"])
            info["run"] = f"'{inode:x}'"  # not the device, whose number may change at a reboot

    def before(self, connection: Connection) -> None:
        # A replaced file is another database: this connection would still write to the old one.
        path = connection.info["path"]
        if path and inode_of(path) != connection.info["inode"]:
            connection.invalidate()

    def leaves_open(self, driver_connection: Any) -> bool:
        return driver_connection.in_transaction is True

    def code(self, error: BaseException) -> str:
        words = str(error)
        for missing in ("no such table", "no such column"):
            if words.startswith(missing):
                return missing
        return getattr(error, "sqlite_errorname", "")

    def server(self, connection: Connection) -> str:
        return "''"  # no identity of a file survives a move or another mount

    def insert_missing(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    def claim_batch(self, connection: Connection, wanted: Mapping[str, str]) -> Sequence[Any]:
        return connection.execute(batch_statement(CLAIM_BATCH, self.is_here(connection), self.clock), wanted).all()

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.max(value, other)

    def lock_shard(self, connection: Connection) -> None:
        pass  # BEGIN IMMEDIATE has locked the file

    def greatest_ticket(self, connection: Connection) -> int:
        return connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'allocator_ticket'")) or 0
