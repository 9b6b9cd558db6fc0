"""Audit of numbers without gaps: what is wrong in the rows that hold them. The command tells what each finding is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, tzinfo
from typing import Any, Literal, NamedTuple

from allocator.errors import InvalidArgument, InvalidId
from allocator.schemes.gapless_numbers import MAX_NUMBER, Group, NumberRule, day_of
from allocator.schemes.shared.argument_checks import quoted

Kind = Literal["gap", "duplicate", "void", "disorder", "ahead", "unreadable"]


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


Row = tuple[Group, int] | Found
"""A number and its group, or why it is unreadable."""


def audit(
    rows: Iterable[Row],
    counters: Mapping[Group, int],
    void: AbstractSet[tuple[Group, int]] = frozenset(),
    *,
    start: int = 1,
) -> Iterator[Found]:
    """Audit rows, whose numbers rise in each group, against the counters of their groups.

    A row that is a `Found` already is yielded as it is. start: the first number of each group.
    """
    unused = sorted(void)
    newest: dict[Group, int] = {}
    for row in rows:
        if isinstance(row, Found):
            yield row
            continue
        group, n = row
        if n <= newest.get(group, 0):
            yield Found("duplicate", group, n, n)
            continue
        yield from gaps(group, max(newest.get(group, 0) + 1, start), n - 1, unused)
        newest[group] = n
        if row in void:
            yield Found("void", group, n, n)
    for group in sorted({*counters, *newest}):
        counter, last = counters.get(group, 0), newest.get(group, 0)
        yield from gaps(group, max(last + 1, start), counter, unused)
        if last > counter:
            yield Found("ahead", group, max(counter + 1, start), last)


def gaps(group: Group, first: int, last: int, void: Sequence[tuple[Group, int]]) -> Iterator[Found]:
    """The numbers from first to last, without those that are void, which are sorted."""
    inside = void[bisect_left(void, (group, first)) : bisect_right(void, (group, last))]
    for _, n in (*inside, (group, last + 1)):
        if first < n:
            yield Found("gap", group, first, n - 1)
        first = n + 1


def disorder(rows: Iterable[Row]) -> Iterator[Found]:
    """The findings where rows come in the order of events."""
    before: dict[Group, int] = {}
    for row in rows:
        if not isinstance(row, Found):
            group, n = row
            if n < before.get(group, n):
                yield Found("disorder", group, n, before[group])
            before[group] = n


def read_row(
    rule: NumberRule, zone: tzinfo, value: object, scope: object, at: object, zone_of_rows: tzinfo | None = None
) -> Row:
    """The group and number of a row, or why it is unreadable. `scope` and `at`: None if no column holds them.

    zone_of_rows: of datetimes without a time zone, if it is not that of the numbers.
    """
    group = Group("" if scope is None else str(scope))
    try:
        period = "" if at is None or rule.reset == "never" else period_of(rule, zone, at, zone_of_rows)
        if isinstance(value, str):
            number = rule.parse(value, group.scope, period)
            return Group(number.scope, number.period), number.n
        n = int(value)  # type: ignore[call-overload]
        if n != value or not 1 <= n <= MAX_NUMBER:
            raise InvalidId(f"{quoted(value)} is no number from 1 to {MAX_NUMBER}")
        if rule.reset != "never" and not period:
            raise InvalidId(f"{quoted(value)} names no {rule.reset}, and no date is beside it: give --period-column")
        return group._replace(period=period), n
    except InvalidArgument as error:
        return Found("unreadable", group, text=str(error))


def period_of(rule: NumberRule, zone: tzinfo, at: Any, zone_of_rows: tzinfo | None) -> str:
    """The period of a date, a datetime or an ISO text."""
    try:
        if not isinstance(at, date):
            at = moment_of(str(at))
        if isinstance(at, datetime) and at.tzinfo is None:
            at = at.replace(tzinfo=zone_of_rows or zone)
        return rule.period(rule.counted_day(day_of(at, zone)))
    except ValueError as error:
        raise InvalidId(f"{quoted(at)} is no date that names a {rule.reset}") from error


def moment_of(text: str) -> date:
    """An ISO text, or the date that another one begins with."""
    try:
        return datetime.fromisoformat(text) if len(text) > len("2026-03-14") else date.fromisoformat(text)
    except ValueError:
        return date.fromisoformat(text[:10])
