"""The findings of the doctor on a database and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """The possible consequence, worst first."""

    DANGER = "danger"
    """An id could be issued twice."""
    OUTAGE = "outage"
    """Ids could stop."""
    NOTE = "note"
    """Worth knowing; no promise is at risk."""


DANGER, OUTAGE, NOTE = SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    name: in kebab-case, the same for one cause on every database.
    found: one sentence, with the value in it.
    mend: the remedy: one sentence, or the exact statement or command.
    where: the database, without its password; empty if the finding concerns several.
    """

    name: str
    severity: Severity
    found: str
    mend: str
    where: str = ""


class Rule(NamedTuple):
    """A rule that yields a finding where `wrong` is true of the facts, which also fill in `found` and `mend`."""

    wrong: Callable[[Mapping[str, Any]], object]
    found: str
    mend: str


Rules = Mapping[Severity, Mapping[str, Rule]]


def judge(rules: Rules, facts: Mapping[str, Any]) -> list[Finding]:
    """The findings of these rules. A fact that could not be read is missing, so rules use `get`."""
    return [
        Finding(name, severity, rule.found.format_map(facts), rule.mend.format_map(facts))
        for severity, named in rules.items()
        for name, rule in named.items()
        if rule.wrong(facts)
    ]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, worst first, without repetitions."""
    return sorted(dict.fromkeys(findings), key=lambda one: SEVERITIES.index(one.severity))


def at(where: str, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(one, where=where) for one in findings]


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Whether all findings are notes."""
    return all(one.severity is NOTE for one in findings)


def unchecked(subject: str, why: str, mend: str) -> Finding:
    """The finding for a failed check: without it, an unchecked database would look healthy."""
    return Finding("not-looked-at", NOTE, f"cannot check {subject}: {why}", mend)


def few(names: Iterable[object], most: int = 3) -> str:
    """The first `most` names, and the number of the others."""
    known = [str(name) for name in names]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"


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


OTHERS_MAY_WRITE = Rule(
    lambda facts: facts.get("others"),
    "{others}: whoever may use such a role can lower a tag, so that its ids come again, or make a token",
    "{revoke} For default privileges and APIs see docs/managed-databases.md",
)


def makes_tokens(mend: str) -> Rule:
    return Rule(
        lambda facts: facts.get("writes_tokens"),
        "{role} may write allocator_token: an attacker who takes over the service can create tokens for everything",
        f"{mend}; create tokens as the tables' owner",
    )
