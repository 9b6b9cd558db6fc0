"""MySQL and MariaDB, by PyMySQL: only what differs. How a server identifies itself, its run and its cluster; what a
session of ours is set to; and the claim."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import ASLEEP, NOWHERE, Blind, Dialect, Words, guards_restarts, triggered
from allocator.database.tables import CLAIMED, number
from allocator.errors import DatabaseUnavailable
from allocator.schemes.failover import CLUSTER, Move, is_run
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import damaged
from allocator.schemes.tag_column import Counter
from allocator.schemes.ticket import CLAIM as BY_CLAIM
from allocator.schemes.ticket import REPLACE

CLOCK = "CAST(1000 * UNIX_TIMESTAMP() + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED)"
"""UNIX_TIMESTAMP(NOW(3)) would follow local time, which steps back an hour in autumn."""

SERVER = (
    "HEX(CRC32(CONCAT_WS('/', /*!50700 @@server_uuid, *//*M!100000 @@server_id, @@hostname, @@port, @@datadir, */ "
    "DATABASE())))"
)
"""MariaDB has no identity of its own; servers that replicate each other differ at least in their number."""
START = "((UUID_SHORT() >> 24) & 4294967295)"
"""The start of the server in seconds; UUID_SHORT() adds one second per 2**24 calls."""
IS_DURABLE = "@@innodb_flush_log_at_trx_commit IN (1, 3) AND (NOT @@log_bin OR @@sync_binlog = 1)"
"""With a binary log, crash recovery rolls back a transaction that the log lacks. MariaDB's value 3 is durable too."""
IS_KNOWN = "/*!50700 @allocator_known = (SELECT 1 FROM performance_schema.global_status LIMIT 0), */"
"""Fails, without reading a row, on an engine that only looks like MySQL and lacks what `FACTS` asks, as OceanBase."""
KEPT = "/*!50700 performance_schema *//*M!100000 information_schema */"
"""Comments that only MySQL, and only MariaDB, executes: a proxy's greeting may hide which server is behind it."""
CLUSTER_SETTINGS = "('wsrep_on', 'wsrep_cluster_name', 'group_replication_group_name')"
CLUSTER_NAME = (
    "(SELECT CONCAT(HEX(CRC32(CONCAT(NULLIF(IF(MAX(variable_name = 'wsrep_on' AND variable_value = 'ON'), "
    "MAX(IF(variable_name = 'wsrep_cluster_name', variable_value, '')), "
    "MAX(IF(variable_name = 'group_replication_group_name', variable_value, ''))), ''), '/', DATABASE()))), '.') "
    f"FROM {KEPT}.global_variables WHERE variable_name IN {CLUSTER_SETTINGS})"
)
"""The name of the server's cluster, whose members commit together; NULL for a server alone."""
NAME = f"COALESCE({CLUSTER_NAME}, {SERVER})"
ASKED = f"CONCAT({NAME}, IF({IS_DURABLE}, '', CONCAT('-', {START})))"
ASKED_OF_EACH_START = f"CONCAT({NAME}, '-', {START})"
IN_SESSION = f"{IS_KNOWN} @allocator_run = {{run}}"
"""Session variables end with the server's process. A statement-based binary log holds their values."""
MENDS = (
    "(SELECT GROUP_CONCAT(mend SEPARATOR '; ') FROM ("
    "SELECT CONCAT('DROP TRIGGER `', REPLACE(trigger_name, '`', '``'), '`') AS mend FROM information_schema.triggers "
    f"WHERE event_object_schema = DATABASE() AND event_object_table IN {CLAIMED} "
    "UNION ALL SELECT CONCAT('ALTER TABLE ', table_name, ' ENGINE = InnoDB') FROM information_schema.tables "
    f"WHERE table_schema = DATABASE() AND table_name IN {(*CLAIMED, number.name)} AND engine <> 'InnoDB') AS found)"
)
"""See `Words.mends`. A user without the right TRIGGER sees no trigger, but then a claim gets no insert id."""
RECYCLE = 60
"""Seconds after which a connection is replaced: its run says whether the server was durable when it was opened."""
FACTS = f""",
    @allocator_run AS session_run,
    (SELECT variable_value FROM {KEPT}.global_status WHERE variable_name = 'Uptime') AS uptime,
    @@GLOBAL.auto_increment_offset AS server_offset, @@GLOBAL.auto_increment_increment AS server_step,
    @@SESSION.auto_increment_offset AS session_offset, @@SESSION.auto_increment_increment AS session_step"""
"""See `Words.facts`. One statement reads the clock once, so the computed start of the server is exact."""
SESSION = (
    "SET SESSION completion_type = 0, autocommit = 0, autocommit = 1, "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, sql_big_selects = 1, "
    "sql_select_limit = 9223372036854775807, "
    "innodb_lock_wait_timeout = {half}, lock_wait_timeout = {half}"
    "/*!50720 , transaction_isolation = 'READ-COMMITTED' *//*M!100101 , tx_isolation = 'READ-COMMITTED' */"
    "/*!80003 , transaction_read_only = 0, max_execution_time = 0 */"
    "/*M!100101 , max_statement_time = 0 *//*M!110101 , transaction_read_only = 0 */"
)
"""Overrides what the configuration, `init_connect` or a listener may have set.

- autocommit: without it a claim is undone when its process ends. The step from 0 to 1 commits what a listener has
  begun, even where its driver does not report a transaction.
- completion_type: another value makes each COMMIT begin a transaction or end the connection.
- strict mode: without it a column that is too small clips the value, and every claim gets the same ids.
- the isolation: under REPEATABLE READ a claim locks the shard's row that it looks at, and waits for each new tag.
- sql_select_limit would hide tags from a list of them.
- the lock waits: by default a statement waits a year for a table that is being altered, and then claims for nobody.
  Half of the timeout leaves time for a retry.
"""
TICKET = (
    "REPLACE INTO allocator_ticket (type) SELECT :type FROM allocator_shard "
    f"WHERE id = 1 AND tickets = '{REPLACE}' AND slot = :slot AND slots = :slots AND move = :shard_move "
    "AND server_run = :run AND {run} = :run {share}"
)
BURN_TICKET = text("REPLACE INTO allocator_ticket (type) VALUES (:type)")
KEEP_TICKET = text("REPLACE INTO allocator_ticket (type, id) VALUES (:type, :last)")
"""An explicit id raises the auto-increment; the row stays, since MySQL 5.7 forgets the counter at a restart."""
# GET_LOCK is of the whole server: schemas of several databases there change one after the other.
SCHEMA_LOCK = "allocator_schema_change"
RUN = "@allocator_run"
IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS: each OK packet has it in its status flags, so no query is needed."""
UNSAID = frozenset({"1064", "1142", "1143", "1146", "1193", "1227", "1235", "1305", "1370"})
"""A server or proxy refuses a variable, function or table, or lacks it: connect without the identity of the server."""
TOO_BIG = "1104"
"""A server's `max_join_size` forbids to look for the cluster's name, until the session allows it."""


class MySQL(Dialect):
    name = "mysql"
    rolls_back_by_itself = True
    words = Words(
        CLOCK,
        MENDS,
        FACTS,
        ignore="IGNORE",
        or_nothing="",
        keep="LAST_INSERT_ID",
        returning="",
        update="FOR UPDATE",
        at_once="FOR UPDATE /*!80001 SKIP LOCKED *//*M!100600 SKIP LOCKED */",
        share="LOCK IN SHARE MODE",
    )
    tickets = REPLACE

    def counter(self, connection: Connection, schema: str, table_name: str, column_name: str) -> Counter:
        quote = connection.dialect.identifier_preparer.quote_identifier  # doubles %, as a statement needs
        place = ".".join(quote(part) for part in (schema, table_name) if part)
        # information_schema may be a day old. A counter that is at 1 is not shown.
        words = connection.exec_driver_sql(f"SHOW CREATE TABLE {place}").one()[1]
        found = re.search(r"^\).*? AUTO_INCREMENT=(\d+)", words, re.MULTILINE)
        hold = f"ALTER TABLE {place.replace('%%', '%')} AUTO_INCREMENT = {{n}}"
        return Counter("AUTO_INCREMENT", int(found[1]) if found else 1, hold=hold)

    def engine_args(self, driver: str, timeout: float) -> dict[str, Any]:
        # PyMySQL's connect_timeout covers the TCP handshake alone, which a frozen server still completes.
        greeting: dict[str, Any] = {"connect_timeout": ceil(timeout)}
        if driver == "pymysql":
            # Else PyMySQL spends a message to switch autocommit off.
            greeting |= {"read_timeout": timeout, "write_timeout": timeout, "autocommit": True}
        return {"connect_args": greeting, "pool_recycle": RECYCLE}

    def on_connect(
        self, engine: Engine, file: str | None, is_given: bool, timeout: float, connection: Any, record: Any
    ) -> None:
        # Not by arguments: a connection may come from the user's own engine. No COMMIT: a server's completion_type may
        # end the connection at it; see `SESSION`.
        if hasattr(connection, "_read_timeout"):
            connection._read_timeout = connection._write_timeout = timeout
        with connection.cursor() as cursor:
            knows = not is_merely_like_it(version_of(connection, cursor))
            session, run = SESSION.format(half=ceil(timeout / 2)), asked()
            identified = IN_SESSION.format(run=run)
            try:
                cursor.execute(f"{session}, {identified}" if knows else session)
            except Exception as error:
                if not knows or self.code(error) not in {TOO_BIG, *UNSAID}:
                    raise
                cursor.execute(session)
                knows = self.code(error) == TOO_BIG
                if knows:
                    cursor.execute(f"SET {identified}")
        if knows:
            record.info.update(allocator_run=RUN, allocator_asked=run)
        else:
            record.info.update(allocator_run=NOWHERE, dialect=IMITATION)

    def leaves_open(self, driver_connection: Any) -> bool:
        status = getattr(driver_connection, "server_status", None)  # PyMySQL's, of the last OK packet
        if isinstance(status, int):
            return bool(status & IN_TRANSACTION)
        return getattr(driver_connection, "in_transaction", False) is True

    def code(self, error: BaseException) -> str:
        return str(error.args[0]) if error.args else ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        # DDL commits implicitly here, so the lock belongs to the session and not to a transaction.
        got = connection.scalar(
            text("SELECT GET_LOCK(:name, :seconds)"), {"name": SCHEMA_LOCK, "seconds": ceil(timeout)}
        )
        if got != 1:
            raise DatabaseUnavailable(f"another change of the schema is still running after {timeout:g} seconds")
        try:
            yield
        except BaseException:
            connection.invalidate()  # the lock ends with the session; the next statement could hide the error
            raise
        connection.execute(text("DO RELEASE_LOCK(:name)"), {"name": SCHEMA_LOCK})

    def server_runs(self, connection: Connection) -> Iterator[tuple[str, Dialect]]:
        connection.info["allocator_asked"] = ""
        if not is_merely_like_it(str(connection.exec_driver_sql("SELECT VERSION()").scalar())):
            with suppress(DBAPIError):
                connection.exec_driver_sql(f"SET {IN_SESSION.format(run=asked())}")
                connection.info["allocator_asked"] = asked()
                yield RUN, self
        yield NOWHERE, IMITATION

    def server_run(self, connection: Connection, facts: Any, known: Move) -> tuple[str, Residue]:
        run, since = str(facts.run), int(facts.at) // 1000 - int(facts.uptime)
        run = known.run if is_run(run, known, since) else run
        if run != facts.session_run:  # a proxy may have changed the server, or it is no longer durable
            connection.execute(text("SET @allocator_run = :run"), {"run": run})
        connection.info["allocator_numbering"] = Residue(facts.session_offset, facts.session_step)
        is_alone = CLUSTER not in facts.run and facts.server_step > 1
        return run, Residue(facts.server_offset, facts.server_step) if is_alone else ALL

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        cursor: Any = connection.execute(claim, parameters).context.cursor
        if cursor.rowcount == 0:
            return None
        if cursor.rowcount != 1:
            raise damaged(name, f"there are {cursor.rowcount} rows")
        if warned(cursor):
            raise damaged(name, "the claim came with a warning of the server, as when a column is too small")
        if cursor.lastrowid <= 0:
            raise triggered(name, "allocator_segment")
        return int(cursor.lastrowid)

    def number_as(self, connection: Connection, residue: Residue) -> None:
        if connection.info.get("allocator_numbering") != residue:
            connection.exec_driver_sql(
                f"SET SESSION auto_increment_offset = {residue.offset}, auto_increment_increment = {residue.step}"
            )
            connection.info["allocator_numbering"] = residue


class LikeMySQL(MySQL):
    """Of an engine that speaks MySQL's protocol, or of a server that does not say which one it is."""

    words = MySQL.words._replace(mends="NULL", facts="", share="FOR UPDATE")  # TiDB has no shared locks
    server_run, number_as, tickets = Dialect.server_run, Dialect.number_as, BY_CLAIM
    """The auto-increment of an imitation gives lower numbers after higher ones, or leaves a million out."""

    def blind(self, connection: Connection) -> Blind:
        return ASLEEP


IMITATION = LikeMySQL()


def warned(cursor: Any) -> bool:
    return bool(getattr(cursor, "warning_count", 0))


def is_merely_like_it(version: str) -> bool:
    """These speak MySQL's protocol, but no single server of theirs holds the row, and their numbers are imitations."""
    return any(name in version for name in ("OceanBase", "TiDB", "Vitess"))


def asked() -> str:
    return ASKED_OF_EACH_START if guards_restarts() else ASKED


def version_of(connection: Any, cursor: Any) -> str:
    """The server's version, which decides the first statement. PyMySQL has it from the greeting."""
    version = getattr(connection, "server_version", None)
    if isinstance(version, str):
        return version
    cursor.execute("SELECT VERSION()")
    return str(cursor.fetchone()[0])
