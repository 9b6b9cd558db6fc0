"""SQLite, the embedded default: only what differs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Thread
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, TextClause, func, text
from sqlalchemy.dialects.sqlite import insert

from allocator.database.dialect import NOWHERE, Dialect, only_row
from allocator.database.schema.tables import CLAIMED
from allocator.database.sqlite import fork_gate
from allocator.database.sqlite.file import alone, check_name, path_of, run_of_file
from allocator.errors import DatabaseUnavailable, InvalidDatabase

if TYPE_CHECKING:
    from allocator.database.verbs.gapless_number_rows import NumberDialect


BUSY_SECONDS = 0.02
"""For short transactions of others, while `alone` keeps all of ours out. `Runner.run` waits for longer ones."""
LEGACY = -1
"""`autocommit` of a connection whose transactions SQLAlchemy controls: sqlite3.LEGACY_TRANSACTION_CONTROL, of 3.12."""
GUARDS = ("allocator_guard_fall", "allocator_guard_rename", "allocator_guard_delete", "allocator_guard_replace")

CLOCK = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
CLAIM = f"""
UPDATE allocator_segment SET
    max_value = max_value + :skip + :span,  -- the gap after a failover, or 0, and what is claimed
    skipped = skipped + :skip,
    claimed_at = {CLOCK},
    move = :now
WHERE tag = :name
    AND max_value <= id_limit - :skip - :span  -- the limit of the tag, and no overflow
    AND max_value >= :seen - :skip  -- the row did not fall back below ids that this process has seen
    AND shard_offset = :residue_offset AND shard_step = :residue_step  -- the ids of this database
    AND move = :was  -- nobody else has skipped the gap meanwhile
    AND {{run}} = :run  -- the file is the one that this process knows
    AND EXISTS (SELECT 1 FROM allocator_shard WHERE move = :now AND server_run = :run)  -- and so are its rows
RETURNING max_value
"""
KEPT = text("SELECT max_value FROM allocator_segment WHERE tag = :name")


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


def kept(connection: Connection, name: str, end: int) -> int:
    """`end`, if the commit that wrote it is still there.

    A process whose locks were lost looks dead: any program that opens the file then takes its journal for one that a
    crash left, and undoes the commit. Afterwards the journal is gone, and this read waits for whoever has it.
    """
    value = only_row(connection.execute(KEPT, {"name": name}).all(), name)
    if value is None or value < end:
        raise DatabaseUnavailable(
            f"{name!r}: {connection.info['path']} holds {value} right after {end} was committed, and no id was issued; "
            "another program undid it: give the ids a file of their own; or a trigger did: run allocator db check"
        )
    return end


FAMILIES = ("SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_READONLY")
"""The codes that begin so, such as SQLITE_READONLY_DIRECTORY, have one meaning."""


class SQLite(Dialect):
    name = "sqlite"
    default_driver = "pysqlite"
    extra = ""
    embedded = True
    claiming = CLAIM
    columns_have_types = False
    max_pause = 0.02  # nobody is told when the file is free
    begin = "BEGIN IMMEDIATE"
    clock = CLOCK
    mends = (
        "(SELECT group_concat('DROP TRIGGER \"' || replace(name, '\"', '\"\"') || '\"', '; ') FROM sqlite_master "
        f"WHERE type = 'trigger' AND tbl_name COLLATE NOCASE IN {CLAIMED} "
        f"AND NOT (tbl_name = 'allocator_segment' AND name IN {GUARDS}))"
    )
    pool_size = 1  # SQLite allows one writer; a database in memory is one connection

    def numbers(self, is_mariadb: bool) -> NumberDialect:
        from allocator.database.sqlite.gapless_draws import SQLiteNumbers

        return SQLiteNumbers(self)

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        return {"timeout": BUSY_SECONDS, "check_same_thread": False}

    def on_given(self, connection: Any) -> None:
        super().on_given(connection)
        if not is_for_all_threads(connection):
            connection.close()
            raise InvalidDatabase(
                "a connection of this engine is for the thread that made it; give the URL, or make the engine with "
                "connect_args={'check_same_thread': False}"
            )
        if getattr(connection, "autocommit", LEGACY) != LEGACY:
            # False keeps a transaction open, in which no PRAGMA can be set; with True the driver ignores commit().
            connection.autocommit = True  # ends that transaction
            connection.autocommit = LEGACY
        connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:.0f}").close()

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        path = info["path"]
        if (info["is_given"] or not path) and (opened := path_of(connection)) != path:
            connection.close()
            raise InvalidDatabase(
                f"the URL of this database names {path or 'no file'}, and {opened or 'memory'} is opened instead; "
                "give the path of the file in a URL, as in sqlite:////srv/ids.db"
            )
        # A commit must survive a power cut. That needs FULL in WAL mode, and EXTRA with a rollback journal.
        connection.execute("PRAGMA synchronous = EXTRA").close()
        if path:
            check_name(path)
            info["run"] = f"'{run_of_file(path)}'"

    def alone(self, file: str | None, end: float) -> AbstractContextManager[object]:
        return alone(os.path.realpath(file), end) if file else fork_gate.lock

    def leaves_open(self, driver_connection: Any) -> bool:
        return driver_connection.in_transaction is True

    def code(self, error: BaseException) -> str:
        name = str(getattr(error, "sqlite_errorname", ""))
        return next((family for family in FAMILIES if name.startswith(family)), name)

    def runs(self, connection: Connection, guards_restarts: bool) -> Iterator[str]:
        files = {name: path for _, name, path in connection.exec_driver_sql("PRAGMA database_list")}
        yield f"'{run_of_file(os.path.realpath(files['main']))}'" if files["main"] else NOWHERE

    def insert_missing(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        end = super().claim(connection, claim, parameters, name)
        return end if end is None else kept(connection, name, end)

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.max(value, other)

    def lock_shard_row(self, connection: Connection, waits: bool) -> bool:
        return True
