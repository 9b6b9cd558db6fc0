"""What a session of MySQL's or MariaDB's is set to, since a server may have others as its defaults."""

from __future__ import annotations

from sqlalchemy import Connection

from allocator.schemes.ticket import Numbering

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


def number_as(connection: Connection, numbering: Numbering) -> None:
    """Offset and step are our own session's: the server's may be those of a replication."""
    wanted = (max(1, numbering.offset), max(1, numbering.step))
    if connection.info.get("numbering") != wanted:
        connection.exec_driver_sql(
            f"SET SESSION auto_increment_offset = {wanted[0]}, auto_increment_increment = {wanted[1]}"
        )
        connection.info["numbering"] = wanted
