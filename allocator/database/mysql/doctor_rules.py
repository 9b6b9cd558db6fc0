"""Rules on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.rules.findings import (
    DANGER,
    NOT_DURABLE,
    NOTE,
    NUMBERS_SHARDS,
    OTHERS_MAY_WRITE,
    OUTAGE,
    Rule,
    makes_tokens,
)

Known = Mapping[str, Any]


def logs(facts: Known) -> bool:
    return facts.get("log_bin") == "ON"


def is_cluster(facts: Known) -> bool:
    return facts.get("wsrep_on") == "ON" or bool(facts.get("group_replication_group_name"))


def writes_nothing(facts: Known) -> bool:
    switches = ("read_only", "super_read_only", "innodb_read_only", "offline_mode")
    return any(str(facts.get(name, "OFF")) not in {"OFF", "0", "NO_LOCK"} for name in switches)


def is_numbered_apart(facts: Known) -> bool:
    return str(facts.get("auto_increment_increment", "1")) != "1" or str(facts.get("auto_increment_offset", "1")) != "1"


DANGERS = {
    "not-durable": NOT_DURABLE,
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
    "others-may-write": OTHERS_MAY_WRITE,
    "role-may-number-shards": NUMBERS_SHARDS,
    "role-may-make-tokens": makes_tokens("use a user with the rights in docs/operating.md"),
}
OUTAGES = {
    "server-read-only": Rule(
        writes_nothing,
        "the server is read-only: read_only is {read_only}",
        "use the URL of the source, or SET GLOBAL read_only = OFF",
    ),
    "numbering-lost": Rule(
        lambda facts: facts.get("unnumbered"),
        "the column id of {unnumbered} is no longer AUTO_INCREMENT",
        "{renumber}",
    ),
    "galera-not-primary": Rule(
        lambda facts: facts.get("wsrep_on") == "ON" and facts.get("wsrep_cluster_status") != "Primary",
        "this node is cut off from its cluster: wsrep_cluster_status is {wsrep_cluster_status}",
        "repair the network; if all nodes are cut off: SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES' on the "
        "most advanced node",
    ),
}
NOTES = {
    "galera-several-writers": Rule(
        lambda facts: facts.get("wsrep_on") == "ON",
        "this is one of {wsrep_cluster_size} nodes of a Galera cluster: claims of one tag on several nodes deadlock "
        "and are retried, and concurrent REPLACE tickets may stall the cluster",
        "write to one node only (by a proxy, or the order of hosts in the URL), and draw tickets with: "
        "allocator shards grow --statement count",
    ),
}
RULES = {DANGER: DANGERS, OUTAGE: OUTAGES, NOTE: NOTES}
