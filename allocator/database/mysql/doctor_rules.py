"""Rules on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.database.doctor_queries.server_rules import CONNECTIONS_FEW, NUMBERS_SHARDS, makes_tokens
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Rule

LEAST_NODES = 3
"""Nodes of a cluster: of two, the one that is left has no majority and refuses writes."""
LEAST_STATEMENT_SECONDS = 1.0
"""A shorter timeout aborts claims that wait for a slow disk or a row lock."""
STRICT = ("STRICT_ALL_TABLES", "STRICT_TRANS_TABLES")

Known = Mapping[str, Any]


def differs(name: str, *allowed: str) -> Any:
    """A condition: the variable is known, and has none of these values."""
    return lambda facts: name in facts and str(facts[name]) not in allowed


def logs(facts: Known) -> bool:
    return facts.get("log_bin") == "ON"


def is_cluster(facts: Known) -> bool:
    return facts.get("wsrep_on") == "ON" or bool(facts.get("group_replication_group_name"))


def waits_for_replicas(facts: Known) -> bool:
    return "ON" in {facts.get("rpl_semi_sync_source_enabled"), facts.get("rpl_semi_sync_master_enabled")}


def writes_nothing(facts: Known) -> bool:
    switches = ("read_only", "super_read_only", "innodb_read_only", "offline_mode")
    return any(str(facts.get(name, "OFF")) not in {"OFF", "0", "NO_LOCK"} for name in switches)


def is_numbered_apart(facts: Known) -> bool:
    return str(facts.get("auto_increment_increment", "1")) != "1" or str(facts.get("auto_increment_offset", "1")) != "1"


DANGERS = {
    "innodb-flush": Rule(
        differs("innodb_flush_log_at_trx_commit", "1"),
        "innodb_flush_log_at_trx_commit is {innodb_flush_log_at_trx_commit}: a crash loses up to a second of commits, "
        "whose ids are in use",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration",
    ),
    "sync-binlog": Rule(
        lambda facts: logs(facts) and str(facts.get("sync_binlog")) != "1",
        "the binary log is on and sync_binlog is {sync_binlog}: after a crash of the machine, the log and the replicas "
        "lack commits",
        "SET GLOBAL sync_binlog = 1, and in the server's configuration",
    ),
    "doublewrite-off": Rule(
        differs("innodb_doublewrite", "ON", "1", "DETECT_AND_RECOVER"),
        "innodb_doublewrite is {innodb_doublewrite}: a page half written in a crash cannot be repaired",
        "set innodb_doublewrite = ON in the server's configuration, and restart it",
    ),
    "binlog-of-statements": Rule(
        lambda facts: logs(facts) and facts.get("binlog_format") == "STATEMENT",
        "binlog_format is STATEMENT: a replica runs the statements of claims and tickets again, and may get other "
        "numbers",
        "SET GLOBAL binlog_format = 'ROW', and in the server's configuration",
    ),
    "numbering-forgotten": Rule(
        lambda facts: facts.get("version_number", (8,)) < (8,),
        "version {version} loses AUTO_INCREMENT at a restart, and REPLACE does not raise it on replicas: tickets may "
        "be issued again",
        "upgrade to MySQL 8.0 or MariaDB 10.2.4 or later, or run allocator shards grow --statement count",
    ),
    "replica-written": Rule(
        lambda facts: facts.get("follows") and not writes_nothing(facts),
        "this server is a replica and can be written to: claims on it and on its source return the same ids",
        "SET GLOBAL read_only = ON, and use the URL of the source",
    ),
    "several-writers": Rule(
        lambda facts: is_numbered_apart(facts) and not is_cluster(facts),
        "auto_increment_increment is {auto_increment_increment} and auto_increment_offset {auto_increment_offset}, as "
        "in a setup with several writers: each of them would issue the same segments and tickets",
        "write to one server only, or make each a shard (docs/fleets.md); SET GLOBAL auto_increment_increment = 1, "
        "auto_increment_offset = 1",
    ),
    "rollback-on-timeout": Rule(
        lambda facts: facts.get("draws_numbers"),
        "innodb_rollback_on_timeout is ON: a statement that times out (error 1205) takes back the numbers of its "
        "transaction, and an application that goes on commits rows with numbers that are given again",
        "set innodb_rollback_on_timeout = OFF in the server's configuration, and restart it; or roll back after each "
        "error",
    ),
    "tag-collation": Rule(
        lambda facts: facts.get("collations"),
        "tags that differ only in case, accents or blanks share one row: {collations}",
        "{recollate}",
    ),
    "role-may-number-shards": NUMBERS_SHARDS,
    "role-may-make-tokens": makes_tokens("use a user with the privileges listed by: allocator doctor --grants"),
}
OUTAGES = {
    "server-read-only": Rule(
        writes_nothing,
        "the server is read-only: read_only is {read_only}",
        "use the URL of the source, or SET GLOBAL read_only = OFF",
    ),
    "statement-timeout": Rule(
        lambda facts: 0 < float(facts.get("max_statement_time", 0)) < LEAST_STATEMENT_SECONDS,
        "max_statement_time is {max_statement_time} s: it aborts claims that wait for a slow disk or a row lock",
        "SET GLOBAL max_statement_time = 10",
    ),
    "connections-few": CONNECTIONS_FEW,
    "numbering-lost": Rule(
        lambda facts: facts.get("unnumbered"),
        "the column id of {unnumbered} is no longer AUTO_INCREMENT",
        "ALTER TABLE {unnumbered} MODIFY id BIGINT NOT NULL AUTO_INCREMENT",
    ),
    "galera-not-primary": Rule(
        lambda facts: facts.get("wsrep_on") == "ON" and facts.get("wsrep_cluster_status") != "Primary",
        "this node is cut off from its cluster: wsrep_cluster_status is {wsrep_cluster_status}",
        "repair the network; if all nodes are cut off: SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES' on the "
        "most advanced node",
    ),
    "galera-too-small": Rule(
        lambda facts: facts.get("wsrep_on") == "ON" and int(facts.get("wsrep_cluster_size", 0)) < LEAST_NODES,
        "the cluster has {wsrep_cluster_size} nodes: with fewer than 3 it does not survive the loss of one",
        "add a node, or an arbitrator (garbd)",
    ),
    "autoinc-lock-mode": Rule(
        lambda facts: facts.get("wsrep_on") == "ON" and str(facts.get("innodb_autoinc_lock_mode")) != "2",
        "innodb_autoinc_lock_mode is {innodb_autoinc_lock_mode} on Galera: tickets and nodes deadlock",
        "set innodb_autoinc_lock_mode = 2 in the server's configuration, and restart it",
    ),
}
NOTES = {
    "asynchronous-standby": Rule(
        lambda facts: facts.get("replicas") and not waits_for_replicas(facts) and not is_cluster(facts),
        "{replicas} replicas follow asynchronously: a promoted one lacks the latest commits, and tags skip ids",
        "enable semi-synchronous replication (rpl_semi_sync_source_enabled = ON; MariaDB "
        "rpl_semi_sync_master_enabled = ON)",
    ),
    "sql-mode-not-strict": Rule(
        lambda facts: "sql_mode" in facts and not any(mode in facts["sql_mode"] for mode in STRICT),
        "sql_mode is {sql_mode!r}: values written by hand are truncated to fit a column (the allocator's own sessions "
        "are strict)",
        "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')",
    ),
    "galera-several-writers": Rule(
        lambda facts: facts.get("wsrep_on") == "ON",
        "this is one of {wsrep_cluster_size} nodes of a Galera cluster: claims of one tag on several nodes deadlock "
        "and are retried, and concurrent REPLACE tickets may stall the cluster",
        "write to one node only (by a proxy, or the order of hosts in the URL), and draw tickets with: "
        "allocator shards grow --statement count",
    ),
    "role-is-superuser": Rule(
        lambda facts: facts.get("superuser"),
        "{role} may delete in every database: anyone with its password can reset ids",
        "use a user with the privileges listed by: allocator doctor --grants",
    ),
    "role-may-delete": Rule(
        lambda facts: facts.get("deletable"),
        "{role} may delete rows of {deletable}, which prevent duplicate ids",
        "use a user with the privileges listed by: allocator doctor --grants",
    ),
    "connection-not-encrypted": Rule(
        lambda facts: facts.get("encrypted") is False and facts.get("is_remote"),
        "the connection to {host} is not encrypted: others on the network can read it",
        "add …?ssl_ca=… to the URL",
    ),
}
RULES = {DANGER: DANGERS, OUTAGE: OUTAGES, NOTE: NOTES}
