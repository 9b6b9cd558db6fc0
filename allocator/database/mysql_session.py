"""A session of MySQL or MariaDB: what it is set to, and which run of which server it is of."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

SESSION = (
    "SET SESSION completion_type = 0, autocommit = 0, autocommit = 1, "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, sql_big_selects = 1, "
    "group_concat_max_len = 1048576, "
    "innodb_lock_wait_timeout = {half}, lock_wait_timeout = {half}"
    "/*!80003 , transaction_read_only = 0 */"
    "/*M!100101 , max_statement_time = 0 *//*M!110101 , transaction_read_only = 0 */"
)
"""What the configuration, `init_connect` or a listener may have set otherwise.

The step of autocommit from 0 to 1 commits what a listener has begun, also where its driver does not tell of that.

Without autocommit a claim is undone when its process ends; with another completion_type every COMMIT begins the next
transaction, or ends the connection. Without the strict mode a column that became too small clips the value, and every
claim gets the same ids. Others refuse our statements; the length is that of MariaDB's JSON_ARRAYAGG.

Whoever waits for a table that is being altered waits for a year, and claims when nobody asks any more. Half the time:
whoever waits longer tries again.
"""
IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS, in the status flags of each OK packet."""

SERVER = "HEX(CRC32(CONCAT_WS('/', @@server_id, @@hostname, @@port, @@datadir, DATABASE())))"
START = "((UUID_SHORT() >> 24) & 4294967295)"
"""When the server started, in seconds; too late by one for each 2**24 numbers that this has given since."""
RUN = f"@allocator_server = {SERVER}, @allocator_run = CONCAT({SERVER}, '-', {START})"
"""In variables of the session, which ends with the server: in a binary log of statements they stand as values."""
CLUSTERS = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_cluster_name', 'group_replication_group_name')"
)


def version_of(connection: Any, cursor: Any) -> str:
    """PyMySQL has it from the greeting; it must be known before anything is said that others do not understand."""
    version = getattr(connection, "server_version", None)
    if isinstance(version, str):
        return version
    cursor.execute("SELECT VERSION()")
    return str(cursor.fetchone()[0])


def is_merely_like_it(version: str) -> bool:
    """TiDB and Vitess speak the protocol; several of their servers, or none of them, keep the row."""
    return "TiDB" in version or "Vitess" in version


def cluster_of(connection: Connection) -> str | None:
    """The variable that names the Galera cluster or the replication group, of which this is a server."""
    info = connection.info
    if "cluster" not in info:
        values = {row.Variable_name: row.Value for row in connection.exec_driver_sql(CLUSTERS)}
        clusters = {
            "@@wsrep_cluster_name": values.get("wsrep_on") == "ON",
            "@@group_replication_group_name": bool(values.get("group_replication_group_name")),
        }
        info["cluster"] = next((name for name, is_one in clusters.items() if is_one), None)
    found: str | None = info["cluster"]
    return found


def times(connection: Connection) -> tuple[int, int]:
    """By the server's own clock, in seconds since 1970: now, and when it started."""
    while True:
        before = connection.exec_driver_sql("SELECT UNIX_TIMESTAMP()").scalar_one()
        _, uptime = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Uptime'").one()
        if connection.exec_driver_sql("SELECT UNIX_TIMESTAMP()").scalar_one() == before:
            return int(before), int(before) - int(uptime)
