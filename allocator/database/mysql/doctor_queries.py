"""The questions to MySQL and MariaDB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from allocator.database.columns.tag_columns import Found
from allocator.database.doctor_queries.questions import (
    Facts,
    Question,
    Tools,
    ahead,
    by_pairs,
    by_row,
    listed,
    losing,
    named,
    others_of,
    rows,
)
from allocator.database.doctor_queries.table_shape import NUMBERED, TAG_COLUMNS
from allocator.database.mysql.doctor_rules import RULES, is_cluster
from allocator.database.mysql.identity import IS_DURABLE, is_merely_like_it
from allocator.database.schema.tables import metadata
from allocator.rules.tag_column import Generator, may_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("
    "'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_read_only', 'log_bin', 'sync_binlog', "
    "'binlog_format', 'read_only', 'super_read_only', 'offline_mode', 'auto_increment_increment', "
    "'auto_increment_offset', 'group_replication_group_name', 'innodb_rollback_on_timeout', "
    "'rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled', 'wsrep_on')"
)
"""Global variables: our session overrides some."""
STATUS = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status')"
SEES_REPLICAS = "GRANT {sees_replicas} ON *.* TO {account}"
SEES_SOURCE = "GRANT {sees_source} ON *.* TO {account}"

NO_HOST = "@''"
WRITING = re.compile(r"\b(INSERT|UPDATE)\b")
OWNING = re.compile(r"\b(ALL PRIVILEGES|CREATE)(?=,|$)")
GRANT = re.compile(r"GRANT (?P<rights>.+?) ON (?:TABLE )?(?P<place>\S+) TO ", re.DOTALL)


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


def version(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = named(
        connection,
        "SELECT VERSION() AS version, CURRENT_USER() AS role, DATABASE() AS database_name",
    )
    maria = is_mariadb(found)
    return {
        **found,
        "version_number": number_of(str(found["version"])),
        "account": user(str(found["role"])),
        "sees_replicas": "REPLICATION MASTER ADMIN" if maria else "REPLICATION SLAVE",
        "sees_source": "REPLICA MONITOR" if maria else "REPLICATION CLIENT",
    }


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def user(name: str) -> str:
    """Quote `name@host`."""
    account, _, host = name.rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (account, host))


def number_of(version: str) -> tuple[int, ...]:
    """The version as MySQL counts: MariaDB keeps AUTO_INCREMENT over restarts from 10.2.4 on, as MySQL from 8.0 on."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if is_merely_like_it(version):
        return (8, 0, 0)
    if "mariadb" not in version.lower():
        return numbers
    return (8, 0, 0) if numbers >= (10, 2, 4) else (5, 7, 0)


def columns(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = rows(
        connection,
        "SELECT table_name AS name, column_name AS part, collation_name AS collation, extra AS extra "
        "FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name LIKE 'allocator\\_%'",
    )
    astray = [one for one in found if TAG_COLUMNS.get(one.name) == one.part and not is_exact(one.collation)]
    numbers = [one for one in found if one.name in NUMBERED and one.part == "id"]
    lost = [one.name for one in numbers if "auto_increment" not in one.extra]
    return {
        "collations": listed([f"{one.name}.{one.part} has {one.collation}" for one in astray]),
        "recollate": "; ".join(
            f"ALTER TABLE {one.name} MODIFY {one.part} VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
            for one in astray
        ),
        "unnumbered": listed(lost),
        "renumber": "; ".join(f"ALTER TABLE {name} MODIFY id BIGINT NOT NULL AUTO_INCREMENT" for name in lost),
    }


def is_exact(collation: str | None) -> bool:
    return collation is None or collation == "binary" or collation.endswith("_bin")


def durability(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """What lets a crash lose commits; the binary log counts where there is one, since a replica may take over."""
    lasting = {"innodb_flush_log_at_trx_commit": ("1", "3"), "innodb_doublewrite": ("ON", "1", "DETECT_AND_RECOVER")}
    if facts["log_bin"] == "ON":
        lasting["sync_binlog"] = ("1",)
    wrong = {name: values[0] for name, values in lasting.items() if str(facts[name]) not in values}
    losses = [f"{name} is {facts[name]}" for name in wrong]
    settings = ", ".join(f"{name} = {value}" for name, value in wrong.items())
    is_durable = bool(connection.exec_driver_sql(f"SELECT {IS_DURABLE}").scalar())
    return losing(losses, f"set {settings} in the server's configuration, and restart it", is_durable)


def replicas(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """Whether replicas follow, and no commit waits for them; only a server with a binary log has any."""
    waits = "ON" in {facts.get("rpl_semi_sync_source_enabled"), facts.get("rpl_semi_sync_master_enabled")}
    if facts["log_bin"] != "ON" or waits or is_cluster(facts) or is_merely_like_it(facts["version"]):
        return {}
    words = "SHOW REPLICAS" if facts["version_number"] >= (8, 0, 22) else "SHOW SLAVE HOSTS"
    return {"has_asynchronous_standby": bool(rows(connection, "SHOW SLAVE HOSTS" if is_mariadb(facts) else words))}


def source(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """Whether this server is a replica."""
    if is_merely_like_it(facts["version"]):
        return {}
    older = is_mariadb(facts) or facts["version_number"] < (8, 0, 22)
    return {"follows": len(rows(connection, "SHOW SLAVE STATUS" if older else "SHOW REPLICA STATUS"))}


def is_mariadb(facts: Facts) -> bool:
    return "mariadb" in str(facts["version"]).lower()


def numbers(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """Whether numbers without gaps are drawn, where a timeout would take them back."""
    if facts["innodb_rollback_on_timeout"] != "ON":
        return {}
    return named(connection, "SELECT EXISTS (SELECT 1 FROM allocator_number) AS draws_numbers")


def clock(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    return ahead(facts, connection.exec_driver_sql("SELECT UNIX_TIMESTAMP(SYSDATE(6))").scalar_one())


def rights(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    granted = [str(one[0]) for one in rows(connection, "SHOW GRANTS FOR CURRENT_USER")]
    return {
        "writes_tokens": writing("allocator_token", granted, str(facts["database_name"])),
        "numbers_shards": writing("allocator_shard", granted, str(facts["database_name"])),
    }


def others(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    names = ",".join(table.name for table in metadata.sorted_tables)
    known = {"account": facts["account"], "names": names, "nobody": "''@%", "everybody": "'PUBLIC'@%"}
    found = rows(connection, OTHERS, **known)
    return others_of((told(one.role), one.place, not one.role.endswith(NO_HOST)) for one in found)


def told(grantee: str) -> str:
    """A grantee as REVOKE takes it: PUBLIC and roles of MariaDB have no host."""
    return grantee.removesuffix(NO_HOST).strip("'") if grantee.endswith(NO_HOST) else grantee


def writing(table: str, granted: Sequence[str], database: str) -> bool:
    """Whether these grants can write a table, unless they are those of the user that creates the tables."""
    wide = {"*.*", f"{database}.*"}
    found = [(place_of(match), match["rights"]) for match in map(GRANT.match, granted) if match]
    if any(place in wide and OWNING.search(rights) for place, rights in found):
        return False
    return any(place in {*wide, f"{database}.{table}"} and WRITING.search(rights) for place, rights in found)


def place_of(match: re.Match[str]) -> str:
    return match["place"].replace("`", "").replace("\\", "").replace("'", "")


QUESTIONS = (
    Question("the version and the user", version),
    Question("the server's settings", by_pairs(VARIABLES)),
    Question("the server's state", by_pairs(STATUS)),
    Question("the columns of tags and numbers", columns, of_tables=True),
    Question("what a crash loses", durability),
    Question("the replicas of this server", replicas, SEES_REPLICAS),
    Question("whether this server follows another", source, SEES_SOURCE),
    Question("the numbers without gaps", numbers, "GRANT SELECT ON allocator_number TO {account}", of_tables=True),
    Question("the server's clock", clock),
    Question("the user's rights", rights),
    Question("the rights of others", others),
    Question("the identity of the server", by_row("SELECT CONCAT_WS('/', @@hostname, @@port, @@datadir) AS machine")),
)


FRESH = "SET @allocator_mysql_8 = 1 /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""Else the counters of tables may be a day old."""


COLUMN = """
SELECT c.table_schema AS db, c.table_name AS tbl, c.column_name AS col, c.column_type AS type,
       c.data_type IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint') AS is_whole,
       EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = c.table_schema
               AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.seq_in_index = 1) AS is_indexed,
       c.extra LIKE '%auto_increment%' AS counts, t.auto_increment AS next, c.column_default AS default_words
FROM information_schema.columns c JOIN information_schema.tables t
  ON t.table_schema = c.table_schema AND t.table_name = c.table_name
 AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
WHERE c.table_schema = COALESCE(NULLIF(:schema, ''), DATABASE()) AND c.table_name = :table AND c.column_name = :column
"""
TRIGGERS = """
SELECT trigger_name, action_statement FROM information_schema.triggers
WHERE event_object_schema = :db AND event_object_table = :tbl AND action_timing = 'BEFORE'
  AND event_manipulation = 'INSERT'
"""


def refresh(connection: Connection) -> None:
    """MariaDB needs no such setting, and reads the text between the stars as a comment."""
    try:
        connection.exec_driver_sql(FRESH)
    except DBAPIError:
        connection.rollback()


def fetch_column(connection: Connection, schema: str, table: str, column: str) -> Found | None:
    refresh(connection)
    asked = {"schema": schema, "table": table, "column": column}
    row = connection.execute(text(COLUMN), asked).first()
    if row is None:
        return None
    triggers = connection.execute(text(TRIGGERS), {"db": row.db, "tbl": row.tbl})
    writing = [
        Generator(f"the trigger {name}", f"DROP TRIGGER {quoted(row.db)}.{quoted(name)}")
        for name, body in triggers
        if may_write(body, column)
    ]
    altered = f"ALTER TABLE {quoted(row.db)}.{quoted(row.tbl)}"
    if row.counts:
        drop, hold = f"{altered} MODIFY {quoted(row.col)} {row.type} NOT NULL", f"{altered} AUTO_INCREMENT = {{n}}"
        writing.append(Generator("AUTO_INCREMENT", drop, int(row.next or 1), hold=hold))
    elif "(" in (row.default_words or ""):
        drop = f"{altered} ALTER {quoted(row.col)} DROP DEFAULT"
        writing.append(Generator(f"DEFAULT {row.default_words}", drop))
    return Found(row.db, row.tbl, row.col, row.type, row.is_whole, row.is_indexed, tuple(writing))


TOOLS = Tools(QUESTIONS, RULES, fetch_column)
