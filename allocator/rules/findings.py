"""What a look at a database and its configuration found: data, put together of plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """What may come of it; the worst comes first."""

    DANGER = "danger"
    """An id could be given twice."""
    OUTAGE = "outage"
    """Ids could stop."""
    NOTE = "note"
    """Worth knowing; nothing that was promised is at stake."""


DANGER, OUTAGE, NOTE = SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    name: in kebab-case, the same for the same cause on every database.
    found: one sentence, with the value in it. mend: one sentence, or the very statement or command.
    where: the database, without its password; empty where several are meant.
    """

    name: str
    severity: Severity
    found: str
    mend: str
    where: str = ""


class Rule(NamedTuple):
    """A finding that facts can lead to; `found` and `mend` are filled in from the same facts."""

    name: str
    severity: Severity
    wrong: Callable[[Mapping[str, Any]], object]
    found: str
    mend: str


def judge(rules: Iterable[Rule], facts: Mapping[str, Any]) -> list[Finding]:
    """What these facts lead to. Rules ask with `get`: what could not be looked at is missing, and leads to nothing."""
    return [
        Finding(rule.name, rule.severity, rule.found.format_map(facts), rule.mend.format_map(facts))
        for rule in rules
        if rule.wrong(facts)
    ]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, each once; of one severity as they were found."""
    return sorted(dict.fromkeys(findings), key=lambda one: SEVERITIES.index(one.severity))


def at(where: str, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(one, where=where) for one in findings]


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Whether there are notes alone, or nothing."""
    return all(one.severity is NOTE for one in findings)


def unseen(what: str, why: str, mend: str) -> Finding:
    """What could not be looked at is said: silence would read as health."""
    return Finding("not-looked-at", NOTE, f"cannot check {what}: {why}", mend)


def few(names: Iterable[object], most: int = 3) -> str:
    """The first of these names, and how many more there are."""
    known = [str(name) for name in names]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"
