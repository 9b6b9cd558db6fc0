"""What a session of ours is set to, and how it may log in."""

from __future__ import annotations

from typing import Any, NoReturn

SESSION = (
    "SET SESSION completion_type = 0, autocommit = 0, autocommit = 1, "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, sql_big_selects = 1, "
    "group_concat_max_len = 1048576, sql_select_limit = 18446744073709551615, "
    "innodb_lock_wait_timeout = {half}, lock_wait_timeout = {half}"
    "/*!80003 , transaction_read_only = 0, max_execution_time = 0 */"
    "/*M!100101 , max_statement_time = 0 *//*M!110101 , transaction_read_only = 0 */"
)
"""Overrides what the configuration, `init_connect` or a listener may have set.

- autocommit: without it a claim is undone when its process ends. The step from 0 to 1 commits what a listener has
  begun, even where its driver does not report a transaction.
- completion_type: another value makes each COMMIT begin a transaction or end the connection.
- strict mode: without it a column that is too small clips the value, and every claim gets the same ids.
- group_concat_max_len limits MariaDB's JSON_ARRAYAGG.
- sql_select_limit would hide tags from a list of them.
- the lock waits: by default a statement waits a year for a table that is being altered, and then claims for nobody.
  Half of the timeout leaves time for a retry.
"""
IN_CLEAR = ("mysql_clear_password", "dialog", "mysql_old_password")
"""Plugins for which PyMySQL sends the password in clear. With caching_sha2_password and sha256_password a server can
learn it too, by a key of its own. Logging in needs these two, so only the rule of hosts protects the password there."""


def version_of(connection: Any, cursor: Any) -> str:
    """The server's version, which decides the first statement. PyMySQL has it from the greeting."""
    version = getattr(connection, "server_version", None)
    if isinstance(version, str):
        return version
    cursor.execute("SELECT VERSION()")
    return str(cursor.fetchone()[0])


class InClear:
    """Replaces such a plugin in PyMySQL, and refuses."""

    def __init__(self, connection: Any) -> None:
        pass

    def authenticate(self, packet: Any) -> NoReturn:
        from pymysql import OperationalError  # type: ignore[import-untyped]

        raise OperationalError(1045, "its server asks for the password in clear, and is named by the fleet alone")
