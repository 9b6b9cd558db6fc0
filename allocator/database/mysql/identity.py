"""How a MySQL or MariaDB server identifies itself, its run and its cluster; and what a session of ours is set to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.database.schema.tables import CLAIMED, number

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
CLUSTER = (
    "(SELECT CONCAT(HEX(CRC32(CONCAT(NULLIF(IF(MAX(variable_name = 'wsrep_on' AND variable_value = 'ON'), "
    "MAX(IF(variable_name = 'wsrep_cluster_name', variable_value, '')), "
    "MAX(IF(variable_name = 'group_replication_group_name', variable_value, ''))), ''), '/', DATABASE()))), '.') "
    f"FROM {KEPT}.global_variables WHERE variable_name IN {CLUSTER_SETTINGS})"
)
"""The name of the server's cluster, whose members commit together; NULL for a server alone."""
NAME = f"COALESCE({CLUSTER}, {SERVER})"
RUN = f"CONCAT({NAME}, IF({IS_DURABLE}, '', CONCAT('-', {START})))"
RUN_OF_EACH_START = f"CONCAT({NAME}, '-', {START})"
IN_SESSION = f"{IS_KNOWN} @allocator_run = {{run}}"
"""Session variables end with the server's process. A statement-based binary log holds their values."""
MENDS = (
    "(SELECT GROUP_CONCAT(mend SEPARATOR '; ') FROM ("
    "SELECT CONCAT('DROP TRIGGER `', REPLACE(trigger_name, '`', '``'), '`') AS mend FROM information_schema.triggers "
    f"WHERE event_object_schema = DATABASE() AND event_object_table IN {CLAIMED} "
    "UNION ALL SELECT CONCAT('ALTER TABLE ', table_name, ' ENGINE = InnoDB') FROM information_schema.tables "
    f"WHERE table_schema = DATABASE() AND table_name IN {(*CLAIMED, number.name)} AND engine <> 'InnoDB') AS found)"
)
"""See `Dialect.mends`. A user without the right TRIGGER sees no trigger, but then a claim gets no insert id."""
FACTS = {
    "run": RUN,
    "session_run": "@allocator_run",
    "at": CLOCK,
    "uptime": f"(SELECT variable_value FROM {KEPT}.global_status WHERE variable_name = 'Uptime')",
    "server_offset": "@@GLOBAL.auto_increment_offset",
    "server_step": "@@GLOBAL.auto_increment_increment",
    "session_offset": "@@SESSION.auto_increment_offset",
    "session_step": "@@SESSION.auto_increment_increment",
    "mends": MENDS,
}
"""See `Dialect.facts`. One statement reads the clock once, so the computed start of the server is exact."""


def is_merely_like_it(version: str) -> bool:
    """These speak MySQL's protocol, but no single server of theirs holds the row, and their numbers are imitations."""
    return any(name in version for name in ("OceanBase", "TiDB", "Vitess"))


def run_in(info: Mapping[Any, Any]) -> str:
    return RUN_OF_EACH_START if info.get("guards_restarts") else RUN


def in_session(info: Mapping[Any, Any]) -> str:
    return IN_SESSION.format(run=run_in(info))


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


def version_of(connection: Any, cursor: Any) -> str:
    """The server's version, which decides the first statement. PyMySQL has it from the greeting."""
    version = getattr(connection, "server_version", None)
    if isinstance(version, str):
        return version
    cursor.execute("SELECT VERSION()")
    return str(cursor.fetchone()[0])
