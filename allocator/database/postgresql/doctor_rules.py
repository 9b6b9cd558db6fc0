"""Rules on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.database.doctor_queries.server_rules import CONNECTIONS_FEW, NUMBERS_SHARDS, makes_tokens
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Rule

LEAST_TIMEOUT_MS = 1000
"""A shorter timeout aborts claims that wait for a slow disk or a row lock."""

RELOAD = "SELECT pg_reload_conf()"
AFTER_PROMOTION = "a promoted one lacks the latest commits, and tags skip ids"


def short(value: object) -> bool:
    return value is not None and 0 < int(str(value)) < LEAST_TIMEOUT_MS


def standby_is_away(facts: Mapping[str, Any]) -> bool:
    waits = facts.get("synchronous_commit") in {"on", "remote_write", "remote_apply"}
    named = bool(facts.get("synchronous_standby_names")) and facts.get("synchronous_standbys") == 0
    return waits and named and not facts.get("in_recovery")


DANGERS = {
    "fsync-off": Rule(
        lambda facts: facts.get("fsync") == "off",
        "fsync is off: a crash of the machine loses commits, or the whole database",
        f"ALTER SYSTEM SET fsync = on; {RELOAD}",
    ),
    "full-page-writes-off": Rule(
        lambda facts: facts.get("full_page_writes") == "off",
        "full_page_writes is off: a page half written in a crash is not repaired, so that rows revert or are lost",
        f"ALTER SYSTEM SET full_page_writes = on; {RELOAD}",
    ),
    "synchronous-commit-off": Rule(
        lambda facts: facts.get("synchronous_commit") == "off",
        "synchronous_commit is off for {role} in {database}: a crash of any server process may lose changes by "
        "operators (a repaired tag, a token); claims, tickets, nodes and leases are durable anyway",
        "ALTER ROLE {role} IN DATABASE {database} SET synchronous_commit = on",
    ),
    "table-unlogged": Rule(
        lambda facts: facts.get("unlogged"),
        "{unlogged} is unlogged: after a crash of the server it is empty, and ids start from 1 again",
        "ALTER TABLE {unlogged} SET LOGGED",
    ),
    "tables-twice": Rule(
        lambda facts: facts.get("copies"),
        "allocator_segment exists in the schemas {copies}, all in the search_path: this role uses {copy_used}, and a "
        "client with another search_path would issue the same ids from another copy",
        "keep the copy with the greatest max_value for every tag, and drop the others",
    ),
    "tag-collation": Rule(
        lambda facts: facts.get("collations"),
        "different tags may share one row: {collations}, a nondeterministic collation",
        "{recollate}",
    ),
    "numbering-cycles": Rule(
        lambda facts: facts.get("cycling"),
        "{cycling} has CYCLE: after its last number it issues the first ones again",
        "ALTER SEQUENCE {cycling} NO CYCLE",
    ),
    "numbering-behind": Rule(
        lambda facts: facts.get("behind"),
        "the counter is below a number it has issued: {behind}",
        "ALTER TABLE allocator_ticket (or allocator_node) ALTER COLUMN id RESTART WITH a number above every id in use",
    ),
    "role-may-number-shards": NUMBERS_SHARDS,
    "role-may-make-tokens": makes_tokens("REVOKE INSERT, UPDATE ON allocator_token FROM {role}"),
}
OUTAGES = {
    "synchronous-standby-away": Rule(
        standby_is_away,
        "every commit waits for one of the standbys {synchronous_standby_names}, but none is connected",
        f"start the standby, or ALTER SYSTEM RESET synchronous_standby_names; {RELOAD}",
    ),
    "server-read-only": Rule(
        lambda facts: facts.get("in_recovery") or facts.get("transaction_read_only") == "on",
        "the server is read-only: in_recovery is {in_recovery}, transaction_read_only is {transaction_read_only}",
        "use the URL of the primary (…?target_session_attrs=read-write), or "
        "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_read_only = off",
    ),
    "statement-timeout": Rule(
        lambda facts: short(facts.get("statement_timeout")) or short(facts.get("transaction_timeout")),
        "statement_timeout is {statement_timeout} ms for {role}: it aborts claims that wait for a slow disk or a row "
        "lock",
        "ALTER ROLE {role} IN DATABASE {database} SET statement_timeout = '10s'",
    ),
    "isolation": Rule(
        lambda facts: facts.get("default_transaction_isolation") not in {None, "read committed"},
        "default_transaction_isolation is {default_transaction_isolation} for {role}: concurrent claims of one tag "
        "fail and are retried",
        "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_isolation = 'read committed'",
    ),
    "connections-few": CONNECTIONS_FEW,
    "row-security": Rule(
        lambda facts: facts.get("filtered"),
        "row level security hides rows of {filtered} from {role}: existing tags cannot be claimed",
        "ALTER TABLE {filtered} DISABLE ROW LEVEL SECURITY",
    ),
    "numbering-lost": Rule(
        lambda facts: facts.get("unnumbered"),
        "the column id of {unnumbered} is no longer an identity",
        "ALTER TABLE {unnumbered} ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY, and RESTART it above every id",
    ),
    "numbering-cached": Rule(
        lambda facts: facts.get("caching"),
        "{caching}: each connection numbers from its own cache, so that numbers come out of order, and processes "
        "mistake a lower one for a database that lost its newest rows",
        "ALTER TABLE allocator_ticket ALTER COLUMN id SET CACHE 1; ALTER TABLE allocator_node ALTER COLUMN id SET "
        "CACHE 1",
    ),
    "right-missing": Rule(
        lambda facts: facts.get("lacking"),
        "{role} lacks privileges that the library needs: {lacking}",
        "{grant} -- to list all: allocator doctor --grants",
    ),
}
NOTES = {
    "synchronous-commit-local": Rule(
        lambda facts: facts.get("synchronous_commit") == "local" and facts.get("synchronous_standby_names"),
        "synchronous_commit is local for {role}: claims do not wait for the standbys "
        "{synchronous_standby_names}: " + AFTER_PROMOTION,
        "ALTER ROLE {role} IN DATABASE {database} SET synchronous_commit = on",
    ),
    "asynchronous-standby": Rule(
        lambda facts: facts.get("asynchronous_standbys"),
        "{asynchronous_standbys} standbys follow asynchronously ({standby_names}) and none synchronously: "
        + AFTER_PROMOTION,
        f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; {RELOAD}",
    ),
    "role-is-superuser": Rule(
        lambda facts: facts.get("superuser"),
        "{role} is a superuser: anyone with its password can reset ids",
        "use a role with the privileges listed by: allocator doctor --grants",
    ),
    "role-may-delete": Rule(
        lambda facts: facts.get("deletable") and not facts.get("superuser"),
        "{role} may delete rows of {deletable}, which prevent duplicate ids",
        "use a role with the privileges listed by: allocator doctor --grants",
    ),
    "connection-not-encrypted": Rule(
        lambda facts: facts.get("encrypted") is False and facts.get("is_remote"),
        "the connection to {host} is not encrypted: others on the network can read it",
        "add …?sslmode=verify-full&sslrootcert=… to the URL",
    ),
    "pooler": Rule(
        lambda facts: facts.get("pooler"),
        "a pooler such as PgBouncer is in front of the server: it decides on the server and the settings of a claim",
        "make it follow a failover at once (PAUSE, RECONNECT), and run the doctor on the server directly too",
    ),
}
RULES = {DANGER: DANGERS, OUTAGE: OUTAGES, NOTE: NOTES}
