"""The findings of the doctor on a database and its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


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
