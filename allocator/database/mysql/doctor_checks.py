"""What the doctor checks on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, text

from allocator.database import checks
from allocator.database.checks import GUARD, NEEDED, TABLES, WRITES, Check, others_may_write
from allocator.database.dialect import Dialect
from allocator.database.mysql.identity import is_merely_like_it
from allocator.schemes.shared.findings import DANGER, Finding

VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', "
    "'sync_binlog', 'binlog_format', 'auto_increment_increment', 'auto_increment_offset', 'wsrep_on', "
    "'group_replication_group_name', 'innodb_rollback_on_timeout')"
)
"""Global variables: our session overrides some."""
DURABLE = {
    "innodb_flush_log_at_trx_commit": ("1", "3"),
    "innodb_doublewrite": ("ON", "1", "DETECT_AND_RECOVER"),
    "sync_binlog": ("1",),
}
OTHERS = """
SELECT DISTINCT grantee AS role, place FROM (
    SELECT grantee, '*.*' AS place, privilege_type FROM information_schema.user_privileges
    UNION SELECT grantee, CONCAT('`', table_schema, '`.*'), privilege_type FROM information_schema.schema_privileges
    WHERE DATABASE() LIKE table_schema
    UNION SELECT grantee, table_name, privilege_type FROM information_schema.table_privileges
    WHERE table_schema = DATABASE() AND FIND_IN_SET(table_name, :names)
    UNION SELECT grantee, table_name, privilege_type FROM information_schema.column_privileges
    WHERE table_schema = DATABASE() AND FIND_IN_SET(table_name, :names)
) AS granted WHERE privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'DROP', 'ALTER', 'TRIGGER') AND grantee <> :account
  AND (grantee LIKE :nobody OR grantee LIKE :everybody OR grantee NOT IN (
    SELECT grantee FROM information_schema.user_privileges WHERE privilege_type = 'CREATE'
    UNION SELECT grantee FROM information_schema.schema_privileges
    WHERE privilege_type = 'CREATE' AND DATABASE() LIKE table_schema))
ORDER BY role, place
"""
"""Who may create the tables owns them, but for PUBLIC and users without a name. Most users see no rights of others."""
NO_HOST = "@''"
"""Of PUBLIC and roles of MariaDB; REVOKE takes them without."""


def settings(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    now = {str(name).lower(): str(value) for name, value in connection.exec_driver_sql(VARIABLES)}
    # The binary log counts where there is one, since a replica may take over.
    wrong = [name for name, values in DURABLE.items() if now[name] not in values]
    if losses := [name for name in wrong if name != "sync_binlog" or now["log_bin"] == "ON"]:
        yield Finding(
            "not-durable",
            DANGER,
            f"a crash of the server may lose commits: {', '.join(f'{name} is {now[name]}' for name in losses)}",
            f"set {', '.join(f'{name} = {DURABLE[name][0]}' for name in losses)} in the server's configuration, and "
            "restart it",
        )
    if now["log_bin"] == "ON" and now.get("binlog_format") == "STATEMENT":
        yield Finding(
            "binlog-of-statements",
            DANGER,
            "binlog_format is STATEMENT: a replica runs the statements of claims and tickets again, and may get other "
            "numbers",
            "SET GLOBAL binlog_format = 'ROW', and in the server's configuration",
        )
    draws = "SELECT EXISTS (SELECT 1 FROM allocator_number)"
    if now["innodb_rollback_on_timeout"] == "ON" and connection.exec_driver_sql(draws).scalar():
        yield Finding(
            "rollback-on-timeout",
            DANGER,
            "innodb_rollback_on_timeout is ON: a statement that times out (error 1205) takes back the numbers of its "
            "transaction, and an application that goes on commits rows with numbers that are given again",
            "set it to OFF in the server's configuration, and restart it; or roll back after each error",
        )
    is_cluster = now.get("wsrep_on") == "ON" or now.get("group_replication_group_name")
    apart = now["auto_increment_increment"], now["auto_increment_offset"]
    if apart != ("1", "1") and not is_cluster:
        yield Finding(
            "several-writers",
            DANGER,
            f"auto_increment_increment is {apart[0]} and auto_increment_offset {apart[1]}, as in a setup with several "
            "writers: each of them would issue the same segments and tickets",
            "write to one server only, or make each a shard (docs/fleets.md); SET GLOBAL auto_increment_increment = 1, "
            "auto_increment_offset = 1",
        )


def source(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    if is_merely_like_it(str(connection.exec_driver_sql("SELECT VERSION()").scalar())):
        return
    follows = connection.exec_driver_sql("SHOW REPLICA STATUS").first()
    if follows and not connection.exec_driver_sql("SELECT @@GLOBAL.read_only").scalar():
        yield Finding(
            "replica-written",
            DANGER,
            "this server is a replica and can be written to: claims on it and on its source return the same ids",
            "SET GLOBAL read_only = ON, and use the URL of the source",
        )


def writes(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    """REPLACE deletes a row."""
    needed = {**NEEDED, "allocator_ticket": f"{WRITES}, DELETE"}
    return checks.writes(connection, dialect, account(connection), needed)


def others(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    known = {"account": account(connection), "names": ",".join(TABLES), "nobody": "''@%", "everybody": "'PUBLIC'@%"}
    found = [(str(role), str(place)) for role, place in connection.execute(text(OTHERS), known)]
    bare = {role: role.removesuffix(NO_HOST).strip("'") for role, _ in found if role.endswith(NO_HOST)}
    yield from others_may_write((bare.get(role, role), place, role not in bare) for role, place in found)


def account(connection: Connection) -> str:
    """The user, as GRANT takes it."""
    name, _, host = str(connection.exec_driver_sql("SELECT CURRENT_USER()").scalar()).rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (name, host))


CHECKS = (
    GUARD,
    Check("the server's settings", settings),
    Check("whether this server follows another", source),
    Check("whether ids can be claimed", writes, of_tables=True, fails="claims-refused"),
    Check("the rights of others", others, of_tables=True),
)
