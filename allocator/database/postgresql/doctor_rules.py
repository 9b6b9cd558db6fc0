"""Rules on PostgreSQL."""

from __future__ import annotations

from allocator.rules.findings import DANGER, NOT_DURABLE, NUMBERS_SHARDS, OTHERS_MAY_WRITE, OUTAGE, Rule, makes_tokens

DANGERS = {
    "not-durable": NOT_DURABLE,
    "tables-twice": Rule(
        lambda facts: facts.get("copies"),
        "tables exist in several schemas of the search_path: {copies}. This role uses the first of each, and a client "
        "with another search_path would issue the same ids or numbers from another copy",
        "keep the copy with the greatest values, and drop the others",
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
    "others-may-write": OTHERS_MAY_WRITE,
    "role-may-number-shards": NUMBERS_SHARDS,
    "role-may-make-tokens": makes_tokens("REVOKE INSERT, UPDATE ON allocator_token FROM {role}"),
}
OUTAGES = {
    "server-read-only": Rule(
        lambda facts: facts.get("in_recovery") or facts.get("transaction_read_only") == "on",
        "the server is read-only: in_recovery is {in_recovery}, transaction_read_only is {transaction_read_only}",
        "use the URL of the primary (…?target_session_attrs=read-write), or "
        "ALTER ROLE {role} IN DATABASE {database} SET default_transaction_read_only = off",
    ),
    "row-security": Rule(
        lambda facts: facts.get("filtered"),
        "row level security hides rows of {filtered} from {role}: existing tags cannot be claimed",
        "ALTER TABLE {filtered} DISABLE ROW LEVEL SECURITY",
    ),
    "numbering-lost": Rule(
        lambda facts: facts.get("unnumbered"),
        "the column id of {unnumbered} is no longer an identity",
        "{renumber}; and RESTART it above every id",
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
        "{grant}",
    ),
}
RULES = {DANGER: DANGERS, OUTAGE: OUTAGES}
