"""From what PostgreSQL says to findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.rules.findings import DANGER, NOTE, OUTAGE, Rule

LEAST_ROOM = 16
"""Two processes of the library, of up to eight connections each: the old and the new one of a release."""
CONNECTIONS_FEW = Rule(
    "connections-few",
    OUTAGE,
    lambda facts: facts.get("room", LEAST_ROOM) < LEAST_ROOM,
    "{room} more connections are allowed by {room_limit}, and a process takes up to 8",
    "raise it, or put a pooler before the server",
)
NUMBERS_SHARDS = Rule(
    "role-may-number-shards",
    DANGER,
    lambda facts: facts.get("numbers_shards"),
    "{role} may write allocator_shard: whoever has its password can let two shards give the same ids",
    "REVOKE INSERT, UPDATE, DELETE ON allocator_shard FROM {role}; allocator db upgrade writes it",
)
LEAST_TIMEOUT_MS = 1000

RELOAD = "SELECT pg_reload_conf()"
AFTER_PROMOTION = "one that is promoted lacks the last commits, and ids skip a gap"


def short(value: object) -> bool:
    return value is not None and 0 < int(str(value)) < LEAST_TIMEOUT_MS


def standby_is_away(facts: Mapping[str, Any]) -> bool:
    waits = facts.get("synchronous_commit") in {"on", "remote_write", "remote_apply"}
    named = bool(facts.get("synchronous_standby_names")) and facts.get("synchronous_standbys") == 0
    return waits and named and not facts.get("in_recovery")


RULES = (
    Rule(
        "fsync-off",
        DANGER,
        lambda facts: facts.get("fsync") == "off",
        "fsync is off: a crash of the machine loses commits, or the whole database",
        f"ALTER SYSTEM SET fsync = on; {RELOAD}",
    ),
    Rule(
        "full-page-writes-off",
        DANGER,
        lambda facts: facts.get("full_page_writes") == "off",
        "full_page_writes is off: a page that was half written in a crash is not mended, and rows fall back or are "
        "lost",
        f"ALTER SYSTEM SET full_page_writes = on; {RELOAD}",
    ),
    Rule(
        "synchronous-commit-off",
        DANGER,
        lambda facts: facts.get("synchronous_commit") == "off",
        "synchronous_commit is off for {role} in {database}: a crash of any process of the server forgets what "
        "operators change (a repaired tag, a token); claims, tickets, nodes and leases are written anyway",
        "ALTER ROLE {role} IN DATABASE {database} SET synchronous_commit = on",
    ),
    Rule(
        "synchronous-commit-local",
        NOTE,
        lambda facts: facts.get("synchronous_commit") == "local" and facts.get("synchronous_standby_names"),
        "synchronous_commit is local for {role}, so that claims do not wait for the standbys "
        "{synchronous_standby_names}: " + AFTER_PROMOTION,
        "ALTER ROLE {role} IN DATABASE {database} SET synchronous_commit = on",
    ),
    Rule(
        "asynchronous-standby",
        NOTE,
        lambda facts: facts.get("asynchronous_standbys"),
        "{asynchronous_standbys} standbys follow asynchronously ({standby_names}) and none synchronously: "
        + AFTER_PROMOTION,
        f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; {RELOAD}",
    ),
    Rule(
        "synchronous-standby-away",
        OUTAGE,
        standby_is_away,
        "every commit waits for one of the standbys {synchronous_standby_names}, and none of them is connected",
        f"start the standby, or ALTER SYSTEM RESET synchronous_standby_names; {RELOAD}",
    ),
    Rule(
        "server-read-only",
        OUTAGE,
        lambda facts: facts.get("in_recovery") or facts.get("transaction_read_only") == "on",
        "the server writes nothing: in_recovery is {in_recovery}, transaction_read_only is {transaction_read_only}",
        "give the URL of the primary (…?target_session_attrs=read-write), or "
        "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_read_only = off",
    ),
    Rule(
        "statement-timeout",
        OUTAGE,
        lambda facts: short(facts.get("statement_timeout")) or short(facts.get("transaction_timeout")),
        "statement_timeout is {statement_timeout} ms for {role}: a claim that waits for a slow disk or a row is ended",
        "ALTER ROLE {role} IN DATABASE {database} SET statement_timeout = '10s'",
    ),
    Rule(
        "isolation",
        OUTAGE,
        lambda facts: facts.get("default_transaction_isolation") not in {None, "read committed"},
        "default_transaction_isolation is {default_transaction_isolation} for {role}: claims of one tag at one moment "
        "refuse each other, and are run again",
        "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_isolation = 'read committed'",
    ),
    CONNECTIONS_FEW,
    Rule(
        "table-unlogged",
        DANGER,
        lambda facts: facts.get("unlogged"),
        "{unlogged} is unlogged: after a crash of the server it is empty, and ids begin with 1 again",
        "ALTER TABLE {unlogged} SET LOGGED",
    ),
    Rule(
        "row-security",
        OUTAGE,
        lambda facts: facts.get("filtered"),
        "row level security hides rows of {filtered} from {role}, so that tags are there and cannot be claimed",
        "ALTER TABLE {filtered} DISABLE ROW LEVEL SECURITY",
    ),
    Rule(
        "tables-twice",
        DANGER,
        lambda facts: facts.get("copies"),
        "allocator_segment is in the schemas {copies}, all of them in the search_path: {copy_used} is used, and who "
        "has "
        "another search_path gives the same ids from another one",
        "keep the copy with the greatest max_value for every tag, and drop the other",
    ),
    Rule(
        "tag-collation",
        DANGER,
        lambda facts: facts.get("collations"),
        "tags that differ may be taken for one: {collations}, which is not deterministic",
        "{recollate}",
    ),
    Rule(
        "numbering-lost",
        OUTAGE,
        lambda facts: facts.get("unnumbered"),
        "the column id of {unnumbered} does not number itself any more",
        "ALTER TABLE {unnumbered} ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY, and RESTART it above every id",
    ),
    Rule(
        "numbering-cycles",
        DANGER,
        lambda facts: facts.get("cycling"),
        "{cycling} has CYCLE: behind its end it gives the first numbers again",
        "ALTER SEQUENCE {cycling} NO CYCLE",
    ),
    Rule(
        "numbering-cached",
        OUTAGE,
        lambda facts: facts.get("caching"),
        "{caching}: connections give numbers out of order, which a process takes for a database that forgot some",
        "ALTER TABLE allocator_ticket ALTER COLUMN id SET CACHE 1; ALTER TABLE allocator_node ALTER COLUMN id SET "
        "CACHE 1",
    ),
    Rule(
        "numbering-behind",
        DANGER,
        lambda facts: facts.get("behind"),
        "the counter was set back: {behind}",
        "ALTER TABLE allocator_ticket (or allocator_node) ALTER COLUMN id RESTART WITH a number above every id in use",
    ),
    Rule(
        "right-missing",
        OUTAGE,
        lambda facts: facts.get("lacking"),
        "{role} lacks rights that the library needs: {lacking}",
        "{grant} -- all that are needed: allocator doctor --grants",
    ),
    NUMBERS_SHARDS,
    Rule(
        "role-is-superuser",
        NOTE,
        lambda facts: facts.get("superuser"),
        "{role} is a superuser: whoever has its password can set ids back",
        "use a role with the rights of: allocator doctor --grants",
    ),
    Rule(
        "role-may-delete",
        NOTE,
        lambda facts: facts.get("deletable") and not facts.get("superuser"),
        "{role} may delete rows of {deletable}, which keep ids from being given again",
        "use a role with the rights of: allocator doctor --grants",
    ),
    Rule(
        "role-may-make-tokens",
        DANGER,
        lambda facts: facts.get("writes_tokens"),
        "{role} may write allocator_token: whoever takes over a service with its password makes tokens for everything",
        "REVOKE INSERT, UPDATE ON allocator_token FROM {role}; run allocator tokens as the tables' owner",
    ),
    Rule(
        "connection-not-encrypted",
        NOTE,
        lambda facts: facts.get("encrypted") is False and facts.get("is_remote"),
        "the connection to {host} is not encrypted, and the password of {role} went over it",
        "…?sslmode=verify-full&sslrootcert=… in the URL",
    ),
    Rule(
        "pooler",
        NOTE,
        lambda facts: facts.get("pooler"),
        "a pooler like PgBouncer stands before the server: which settings and which server a claim meets is its "
        "decision",
        "let it follow a failover at once (PAUSE, RECONNECT), and look at the server itself too",
    ),
)
