"""Rules on every database that is a server, whatever the statement that mends it."""

from __future__ import annotations

from allocator.rules.findings import Rule

NOT_DURABLE = Rule(
    lambda facts: facts.get("losses"),
    "a crash of the server may lose commits: {losses}{restarts}",
    "{durable_by}",
)
NUMBERS_SHARDS = Rule(
    lambda facts: facts.get("numbers_shards"),
    "{role} may write allocator_shard: anyone with its password can make two shards issue the same ids",
    "REVOKE INSERT, UPDATE, DELETE ON allocator_shard FROM {role}; only allocator db upgrade writes it",
)


def makes_tokens(mend: str) -> Rule:
    return Rule(
        lambda facts: facts.get("writes_tokens"),
        "{role} may write allocator_token: an attacker who takes over the service can create tokens for everything",
        f"{mend}; create tokens as the tables' owner",
    )
