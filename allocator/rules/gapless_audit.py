"""Audit of numbers without gaps: what is wrong in the rows that hold them, by scope and period.

gap         numbers from `start` to the newest one that no row has, and that are not void
duplicate   a number that another row has too
disorder    a number below that of the row before, where the rows come in the order of a column
ahead       numbers above the counter, which will issue them again
unreadable  a value that is no number of the format, scope and period

The rows may come in any order. Memory holds one entry for each run of numbers without a gap: a few for each scope and
period if the rows are sorted, and never one for each row.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from allocator.errors import InvalidArgument, InvalidId
from allocator.schemes.gapless_numbers import LENGTHS, MAX_NUMBER, Group, NumberRule, Reset, first_day
from allocator.schemes.shared.argument_checks import quoted

IS_UUID = re.compile("[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\\1[0-9a-fA-F]{4}){2}\\1[0-9a-fA-F]{12}")
NONE: Mapping[str, str] = MappingProxyType({})
Kind = Literal["gap", "duplicate", "disorder", "ahead", "unreadable"]


class Found(NamedTuple):
    """A finding of the audit.

    first, last: the numbers; for a disorder, this one and the one before; 0 if unreadable.
    """

    kind: Kind
    group: Group
    first: int = 0
    last: int = 0
    text: str = ""
    """Why a value is unreadable; empty for other findings."""


class Runs:
    """A set of numbers, as runs without a gap."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, n: int) -> bool:
        """Add a number; False if it was there."""
        place = bisect_right(self.starts, n)
        if place and n <= self.ends[place - 1]:
            return False
        follows = place > 0 and self.ends[place - 1] == n - 1
        precedes = place < len(self.starts) and self.starts[place] == n + 1
        if follows and precedes:
            self.ends[place - 1] = self.ends.pop(place)
            self.starts.pop(place)
        elif follows:
            self.ends[place - 1] = n
        elif precedes:
            self.starts[place] = n
        else:
            self.starts.insert(place, n)
            self.ends.insert(place, n)
        return True

    @property
    def newest(self) -> int:
        return self.ends[-1] if self.ends else 0

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """First and last number of each gap between two numbers."""
        for start, end in zip(self.starts, self.ends, strict=True):
            if first < start and first <= last:
                yield first, min(start - 1, last)
            first = max(first, end + 1)
        if first <= last:
            yield first, last


def audit(
    rows: Iterable[tuple[Group, int] | Found],
    counters: Mapping[Group, int],
    void: Iterable[tuple[Group, int]] = (),
    *,
    start: int = 1,
    in_order: bool = False,
) -> Iterator[Found]:
    """Audit rows against the counters of their groups. A row that is a `Found` already is yielded as it is.

    start: the first number of each group. in_order: the rows come in the order of events.
    """
    groups: dict[Group, Runs] = {group: Runs() for group in counters}
    yield from each_row(rows, groups, in_order)
    newest = {group: runs.newest for group, runs in groups.items()}
    for group, n in void:
        if group in groups:
            groups[group].add(n)
    for group in sorted(groups):
        counter, runs = counters.get(group, 0), groups[group]
        yield from (Found("gap", group, *gap) for gap in runs.gaps(start, max(newest[group], counter)))
        if newest[group] > counter:
            yield Found("ahead", group, max(counter + 1, runs.starts[0]), newest[group])


def each_row(rows: Iterable[tuple[Group, int] | Found], groups: dict[Group, Runs], in_order: bool) -> Iterator[Found]:
    """Add each row to the numbers of its group; yield duplicates and disorder."""
    before: dict[Group, int] = {}
    for row in rows:
        if isinstance(row, Found):
            yield row
            continue
        group, n = row
        if not groups.setdefault(group, Runs()).add(n):
            yield Found("duplicate", group, n, n)
        elif in_order and n < before.get(group, n):
            yield Found("disorder", group, n, before[group])
        before[group] = n


def uuid_of(scope: str) -> UUID | None:
    """Only of 32 digits, with or without dashes."""
    return UUID(scope) if IS_UUID.fullmatch(scope) else None


def counted(scope: str, scopes: Mapping[str, str]) -> str:
    """The scope of the counter that has the same UUID; without one, the scope itself.

    PostgreSQL fills a CHAR with spaces, which no scope has.
    """
    bare = scope.rstrip(" ")
    return scopes.get(bare) or scopes.get(str(uuid_of(bare) or bare), scope)


def scopes_of(counters: Iterable[Group]) -> dict[str, str]:
    """The scopes of counters, by their text. A UUID is found by its usual spelling too."""
    own = {one.scope: one.scope for one in counters}
    return {str(uuid_of(scope) or scope): scope for scope in own} | own


def read_row(
    rule: NumberRule, zone: tzinfo, value: object, scope: object, at: object, *, scopes: Mapping[str, str] = NONE
) -> tuple[Group, int] | Found:
    """The group and number of a row, or why it is unreadable. `scope` and `at`: None if no column holds them.

    scopes: those of the counters, as `scopes_of` returns them.
    """
    group = Group("" if scope is None else counted(str(scope), scopes))
    try:
        period = period_of(rule, zone, at)
        if isinstance(value, str):
            number = rule.parse(value, group.scope, period)
            return Group(number.scope, number.period), number.n
        n = int(value)  # type: ignore[call-overload]
        if n != value or not 1 <= n <= MAX_NUMBER:
            raise InvalidId(f"{quoted(value)} is no number from 1 to {MAX_NUMBER}")
        return group._replace(period=period), n
    except InvalidArgument as error:
        return Found("unreadable", group, text=str(error))


def period_of(rule: NumberRule, zone: tzinfo, at: object) -> str:
    """The period of a date, a datetime, an ISO text or a year. A datetime without a time zone keeps its own date."""
    length = LENGTHS[rule.reset]
    if at is None or not length:
        return ""
    if isinstance(at, datetime) and at.tzinfo is not None:
        at = at.astimezone(zone)
    found = str(at)[:length]
    if rule.is_fiscal and str(at) != found:
        day = str(at)[:10]
        found = rule.period(rule.counted_day(first_day(day))) if is_period(day) and len(day) == 10 else ""
    if not is_period(found) or len(found) != length:
        raise InvalidId(f"{quoted(at)} is no date that names a {rule.reset}")
    return found


def reset_of(periods: Iterable[str]) -> Reset:
    """When numbers of these periods restart."""
    longest = max(map(len, periods), default=0)
    return next(reset for reset, length in LENGTHS.items() if length == longest)


def is_period(text: str) -> bool:
    """Whether a text is a year, month or day, or empty."""
    try:
        first_day(text)
    except ValueError:
        return False
    return len(text) in LENGTHS.values()
