"""What the doctor asks of one server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, Executable, delete, false, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import Dialect, undo
from allocator.database.driver_errors import FORBIDDEN, has_code
from allocator.database.tables import VERSION_TABLE, metadata
from allocator.runtime.mounts import MOUNTS, is_networked, mount_of, mounts_of
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding

WRITES, ADDS, READS = "SELECT, INSERT, UPDATE", "SELECT, INSERT", "SELECT"
MOVES = ("server_run", "move", "new_tags_above", "moved_at", "made")
"""What a failover changes in the shard's row, and a new tag. All else there is the operator's."""
NEEDED = {
    **dict.fromkeys(("allocator_segment", "allocator_lease"), WRITES),
    "allocator_node": ADDS,
    "allocator_shard": f"{READS}, UPDATE ({', '.join(MOVES)})",
    **dict.fromkeys(("allocator_ticket", "allocator_token"), READS),
    **dict.fromkeys(("allocator_number", "allocator_number_void"), READS),
}
"""The rights of who draws ids: see docs/operating.md. The table of the revision may be Django's or Alembic's."""
TABLES = [table.name for table in metadata.sorted_tables]
BY_HAND = {"allocator_token", "allocator_number", "allocator_number_void"}
"""What docs/operating.md lets users other than the one that draws write."""


class Check(NamedTuple):
    """A check of the server.

    of_tables: it needs them all.
    fails: the name of the finding, an outage, if the check itself fails; else that is a note.
    """

    subject: str
    ask: Callable[[Connection, Dialect], Iterable[Finding]]
    of_tables: bool = False
    fails: str = ""


def ask(connection: Connection, dialect: Dialect, check: Check) -> list[Finding]:
    return list(check.ask(connection, dialect))


def guard(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    if blind := dialect.blind(connection):
        name, severity = ("guard-sleeps", DANGER) if blind.sleeps else ("guard-partly-blind", NOTE)
        yield Finding(name, severity, blind.found, blind.mend)


GUARD = Check("the failover guard", guard)


def writes(
    connection: Connection, dialect: Dialect, user: str, needed: Mapping[str, str] = NEEDED, also: str = ""
) -> Iterator[Finding]:
    """The finding for a right of `needed` that the user lacks, with all grants; `also` is one more."""
    lacks = ""
    with suppress(DBAPIError):  # the revision may be in Django's table, or Alembic's
        if is_refused(connection, dialect, text(f"SELECT version_num FROM {VERSION_TABLE}")):
            lacks, needed = f"SELECT on {VERSION_TABLE}", {VERSION_TABLE: READS, **needed}
    if lacks := lacks or lacking(connection, dialect, needed):
        grants = " ".join([*(f"GRANT {verbs} ON {name} TO {user};" for name, verbs in needed.items()), also])
        yield Finding("right-missing", OUTAGE, f"{user} lacks the right {lacks}", grants.strip())


def lacking(connection: Connection, dialect: Dialect, needed: Mapping[str, str]) -> str:
    """The first right that the user lacks, found by a statement for each, on no row. Raises what else stops a claim."""
    for name, verbs in needed.items():
        table = metadata.tables[name]
        columns = [column for column in table.columns if column.identity is None]
        written = MOVES if name == "allocator_shard" else [table.columns.keys()[1]]  # of a tag its `max_value`
        tried: dict[str, Executable] = {
            "SELECT": select(*columns).where(false()),
            "INSERT": insert(table).from_select(columns, select(*columns).where(false())),
            "UPDATE": update(table).values({one: table.c[one] for one in written}).where(false()),
            "DELETE": delete(table).where(false()),
        }
        for verb in re.findall(r"\w+(?: \(.*\))?", verbs):
            if is_refused(connection, dialect, tried[verb.partition(" ")[0]]):
                return f"{verb} on {name}"
    return ""


def is_refused(connection: Connection, dialect: Dialect, statement: Executable) -> bool:
    """Whether the user lacks the right to run it."""
    try:
        connection.execute(statement).close()
    except DBAPIError as error:
        if has_code(error, FORBIDDEN, dialect):
            return True
        raise
    return False


# -- PostgreSQL


SEQUENCE = "allocator_node_id_seq"
ROLES = """
SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(rolname) END AS role,
       string_agg(DISTINCT CAST(CAST(t.oid AS regclass) AS text), ', ') AS places, rolcanlogin AS is_user
FROM pg_class t CROSS JOIN LATERAL (
    SELECT grantee, privilege_type FROM aclexplode(relacl)
    UNION SELECT one.grantee, one.privilege_type FROM pg_attribute, aclexplode(attacl) AS one WHERE attrelid = t.oid
) AS granted LEFT JOIN pg_roles ON pg_roles.oid = grantee
WHERE t.oid IN (SELECT to_regclass(name) FROM unnest(CAST(:names AS text[])) AS name)
  AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
  AND grantee <> relowner AND rolname IS DISTINCT FROM current_user AND rolsuper IS NOT TRUE
  AND (pg_has_role(relowner, 'USAGE') OR NOT pg_has_role(grantee, 'USAGE'))
  AND (NOT relrowsecurity OR rolbypassrls IS TRUE OR EXISTS (
    SELECT FROM pg_policy, unnest(polroles) AS named WHERE polrelid = t.oid AND polcmd <> 'r'
    AND (grantee = 0 OR named = 0 OR pg_has_role(grantee, named, 'USAGE'))))
GROUP BY 1, 3 ORDER BY 1
"""
"""A role that is no owner may have its rights from groups that it is in; these are no others. Row level security with
no policy for a role lets it write nothing (but for TRUNCATE, which no API has)."""


def durable_wal(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    from allocator.database.postgresql import IS_DURABLE  # a process asks one kind of database

    if not connection.exec_driver_sql(f"SELECT {IS_DURABLE}").scalar():
        yield Finding(
            "not-durable",
            DANGER,
            "fsync or full_page_writes is off: a crash of the server may lose commits, and each restart skips ids",
            "ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()",
        )


def other_roles(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    found = connection.execute(text(ROLES), {"names": [*TABLES, SEQUENCE]})
    others = [one for one in found if not (one.is_user and BY_HAND.issuperset(one.places.split(", ")))]
    if others:
        yield Finding(
            "others-may-write",
            DANGER,
            f"{', '.join(f'{one.role} may write {one.places}' for one in others)}: whoever may use such a role can "
            "lower a tag, so that its ids come again, or make a token",
            f"{' '.join(f'REVOKE ALL ON {one.places} FROM {one.role};' for one in others)} For default privileges "
            "and APIs see docs/managed-databases.md",
        )


def writes_and_draws(connection: Connection, dialect: Dialect) -> list[Finding]:
    """After a failover a sequence is drawn from, to skip node numbers."""
    query = f"SELECT quote_ident(current_user), has_sequence_privilege(to_regclass('{SEQUENCE}'), 'USAGE')"
    role, may_draw = connection.exec_driver_sql(query).one()
    usage = f"GRANT USAGE ON SEQUENCE {SEQUENCE} TO {role};"
    found = list(writes(connection, dialect, role, also=usage))
    if not found and may_draw is False:
        found.append(Finding("right-missing", OUTAGE, f"{role} lacks the right USAGE on {SEQUENCE}", usage))
    return found


# -- MySQL and MariaDB


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
    from allocator.database.mysql import is_merely_like_it

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


def writes_and_replaces(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    """REPLACE deletes a row."""
    needed = {**NEEDED, "allocator_ticket": f"{WRITES}, DELETE"}
    return writes(connection, dialect, account(connection), needed)


def account(connection: Connection) -> str:
    """The user, as GRANT takes it."""
    name, _, host = str(connection.exec_driver_sql("SELECT CURRENT_USER()").scalar()).rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (name, host))


# -- SQLite and its file


def local(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    from allocator.database.sqlite import path_of  # a process asks one kind of database

    path = path_of(connection.connection.dbapi_connection)
    with suppress(OSError):  # there is no /proc/mounts but on Linux
        mount = mount_of(path, mounts_of(MOUNTS.read_text()))
        if mount and is_networked(mount.kind):
            yield Finding(
                "network-file-system",
                DANGER,
                f"{path} is on a network file system ({mount.kind}): two machines may get the same lock, and a flush "
                "may not reach the disk",
                "move the file to a local disk; for several machines, use a database server",
            )


def writes_a_page(connection: Connection, dialect: Dialect) -> list[Finding]:
    """Write a page and take it back: then SQLite has locked the file, and made a journal in its folder."""
    connection.exec_driver_sql(dialect.begin)
    try:
        connection.exec_driver_sql("UPDATE allocator_shard SET id = id")
    finally:
        undo(connection)
    return []


CHECKS = {
    "postgresql": (
        GUARD,
        Check("what a crash loses", durable_wal),
        Check("whether ids can be claimed", writes_and_draws, of_tables=True, fails="claims-refused"),
        Check("the rights of others", other_roles, of_tables=True),
    ),
    "mysql": (
        GUARD,
        Check("the server's settings", settings),
        Check("whether this server follows another", source),
        Check("whether ids can be claimed", writes_and_replaces, of_tables=True, fails="claims-refused"),
    ),
    "sqlite": (
        GUARD,
        Check("where the file is", local),
        Check("whether ids can be claimed", writes_a_page, of_tables=True, fails="claims-refused"),
    ),
}
