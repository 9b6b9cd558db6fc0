"""MySQL and MariaDB, by PyMySQL: only what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

from sqlalchemy import Connection, CursorResult, bindparam, func, select, text
from sqlalchemy.dialects.mysql import insert

from allocator.database.batch import CLAIMABLE, NotAllOfThem, Wanted, among, ends_of, listed, statement
from allocator.database.dialect import MAX_CONNECT_SECONDS, Dialect
from allocator.database.segments import RAISED, claimed, claiming, execute
from allocator.database.tables import segment, worker
from allocator.database.tickets import FENCE, FLOOR, drawn_by, with_server
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
)
from allocator.schemes.lane import Lane
from allocator.schemes.shard import Shard
from allocator.schemes.tag import damaged
from allocator.schemes.ticket import Numbering

CLAIM = claiming(func.last_insert_id(RAISED))
FREE = select(segment.c.tag).with_for_update(skip_locked=True)
CLAIMED = select(segment.c.tag, segment.c.max_value)
CLAIM_BATCH = statement(
    "UPDATE allocator_segment s JOIN JSON_TABLE(:wanted, '$[*]' COLUMNS ("
    "name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.name', span BIGINT PATH '$.span', "
    "seen BIGINT PATH '$.seen', lane_offset BIGINT PATH '$.lane_offset', lane_step BIGINT PATH '$.lane_step')) w "
    f"SET s.max_value = s.max_value + w.span WHERE s.tag IN :names AND {CLAIMABLE}"
).bindparams(bindparam("names", expanding=True))
REPLACE = f"REPLACE INTO allocator_ticket (type) SELECT :type {FENCE} LOCK IN SHARE MODE"
COUNT = (
    f"INSERT INTO allocator_ticket_counter (type, id) SELECT :type, LAST_INSERT_ID(:first) {FENCE} LOCK IN SHARE MODE "
    "ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(allocator_ticket_counter.id + :step)"
)
SCHEMA_LOCK = "allocator_schema_change"

SESSION = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), innodb_lock_wait_timeout = {seconds}"
"""Without the strict mode a column that became too small clips the value, and every claim gets the same ids."""


class MySQL(Dialect):
    name = "mysql"
    default_driver = "pymysql"
    extra = "mysql"
    needs_name = True
    locks_what_it_reads = True
    replacing, counting = REPLACE, COUNT
    insert_missing = insert(segment).prefix_with("IGNORE")
    insert_missing_worker = insert(worker).prefix_with("IGNORE")
    contended = frozenset({"1213", "1205", "1020"})
    errors = {
        "1062": MaxValueWentBack,
        "1044": DatabaseRefused,
        "1045": DatabaseRefused,
        "1049": DatabaseRefused,
        "1064": DatabaseRefused,
        "1305": DatabaseRefused,
        "1142": DatabaseRefused,
        "1698": DatabaseRefused,
        "1054": SchemaOutOfDate,
        "1146": SchemaOutOfDate,
        "1264": SchemaDamaged,
        "1690": SchemaDamaged,
        "167": Exhausted,
        "1467": Exhausted,
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

    def claim_segment(self, connection: Connection, name: str, size: int, lane: Lane, seen: int) -> int | None:
        result = execute(connection, CLAIM, claimed(name, size, lane, seen))
        if result.rowcount == 0:
            return None
        if result.rowcount != 1:
            raise damaged(name, f"there are {result.rowcount} rows")
        if warned(result):
            raise damaged(name, "the claim came with a warning of the server, as when a column is too small")
        if result.lastrowid <= 0:
            raise damaged(name, f"the claim returned {result.lastrowid}, as when the table has a trigger")
        return int(result.lastrowid)

    least_batch = 6  # it is a transaction of five round trips

    def claim_segments(self, connection: Connection, wanted: Sequence[Wanted]) -> dict[str, int]:
        with suppress(NotAllOfThem), self.transaction(connection):
            free = set(connection.scalars(FREE.where(among(one.name for one in wanted))))
            chosen = [one for one in wanted if one.name in free]
            result = connection.execute(CLAIM_BATCH, {**listed(chosen), "names": [one.name for one in chosen]})
            if result.rowcount != len(chosen) or warned(result):
                raise NotAllOfThem
            return ends_of(connection.execute(CLAIMED.where(among(free))).all())
        return {}

    # -- tickets

    def server(self, connection: Connection) -> str:
        # MariaDB has no identity of its own; servers that replicate each other differ at least in this number.
        server = "@@server_id" if getattr(connection.dialect, "is_mariadb", False) else "@@server_uuid"
        return f"CONCAT({server}, '/', DATABASE())"

    def place(self, connection: Connection) -> str:
        return "CONCAT_WS('/', @@hostname, @@port, @@datadir, DATABASE())"

    def replace_ticket(self, connection: Connection, kind: str, shard: Shard) -> int | None:
        number_as(connection, shard.numbering)
        return super().replace_ticket(connection, kind, shard)

    def drawn(self, connection: Connection, statement: str, kind: str, shard: Shard) -> int | None:
        result = connection.execute(with_server(statement, self.server(connection)), drawn_by(kind, shard))
        return int(result.lastrowid) if result.rowcount else None

    def see_the_newest(self, connection: Connection) -> None:
        # By default a transaction sees the past, and MariaDB then refuses to change rows that have changed since.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def lock_shard(self, connection: Connection) -> None:
        connection.exec_driver_sql("SELECT id FROM allocator_shard FOR UPDATE").all()

    def greatest_ticket(self, connection: Connection, numbering: Numbering) -> int:
        number_as(connection, numbering)
        result = connection.execute(text("REPLACE INTO allocator_ticket (type) VALUES (:type)"), {"type": FLOOR})
        return int(result.lastrowid)


def warned(result: CursorResult[Any]) -> bool:
    return bool(getattr(result.context.cursor, "warning_count", 0))


def number_as(connection: Connection, numbering: Numbering) -> None:
    """Offset and step are our own session's: the server's may be those of a replication."""
    wanted = (max(1, numbering.offset), max(1, numbering.step))
    if connection.info.get("numbering") != wanted:
        connection.exec_driver_sql(
            f"SET SESSION auto_increment_offset = {wanted[0]}, auto_increment_increment = {wanted[1]}"
        )
        connection.info["numbering"] = wanted
