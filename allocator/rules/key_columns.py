"""Integer keys of the host's own tables: the used share of each, and the date when it is used up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import NamedTuple

FULL = 0.8
"""A key needs attention from this share on, whatever its rate: widening takes planning."""
SOON = 365
"""Days. A key that ends earlier needs attention."""
YEARS = 1000 * 365
"""Days. A key that ends later has no date."""


class KeyColumn(NamedTuple):
    """The integer primary key of a table, or a foreign key that holds less than the key that it references.

    type: in the database's words.
    limit: the greatest value that it can hold, and that its sequence gives.
    greatest: the greatest value so far, issued or stored up to the limit of the sequence; None if this user may not
        read it.
    references: the referenced table and column; empty for a primary key.
    by_sequence: whether its sequence ends before the column does. starts: the sequence's least value.
    next: the next value of its counter, if rows from there on hold values that it will issue.
    mend: the statement that then raises the counter; None if this user may not read its position.
    """

    table: str
    column: str
    type: str
    limit: int
    greatest: int | None
    references: str = ""
    by_sequence: bool = False
    starts: int = 1
    next: int | None = None
    mend: str | None = ""

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column}"

    @property
    def used(self) -> float:
        """The used share of the range from the start to the limit."""
        before = self.starts - 1
        return max(0, (self.greatest or 0) - before) / max(1, self.limit - before)

    @property
    def is_urgent(self) -> bool:
        """Whether the key needs attention whatever its rate."""
        return self.used >= FULL or self.greatest is None or self.next is not None


class Outlook(NamedTuple):
    """A key, its rate, and the date when it is used up; None without a rate, or after a thousand years."""

    key: KeyColumn
    a_day: float | None
    ends: date | None

    def needs_attention(self, today: date) -> bool:
        soon = self.ends is not None and self.ends <= today + timedelta(SOON)
        return soon or self.key.is_urgent


def outlooks(
    keys: Iterable[KeyColumn], before: Mapping[str, int] | None, days: float | None, today: date
) -> list[Outlook]:
    """The outlook of each key, the worst first: counter behind, used up, then by date, then by used share.

    before: the greatest values by name, `days` ago; None if all were 0 then, and `days` None without an earlier run.
    """
    found = [outlook(key, before, days, today) for key in keys]
    return sorted(found, key=rank)


def rank(one: Outlook) -> tuple[bool, bool, date, float, str]:
    return one.key.next is None, one.key.used < 1, one.ends or date.max, -one.key.used, one.key.name


def outlook(key: KeyColumn, before: Mapping[str, int] | None, days: float | None, today: date) -> Outlook:
    """The outlook of a key, at the rate since the earlier run."""
    known = 0 if before is None else before.get(key.name)
    if not days or known is None or key.greatest is None:
        return Outlook(key, None, None)
    return at_rate(key, max(0, key.greatest - known) / days, today)


def at_rate(key: KeyColumn, a_day: float | None, today: date) -> Outlook:
    """The outlook of a key at a rate of `a_day` values a day; None if it is not known."""
    left = (key.limit - (key.greatest or 0)) / a_day if a_day else YEARS
    return Outlook(key, a_day, today + timedelta(max(0, int(left))) if left < YEARS else None)
