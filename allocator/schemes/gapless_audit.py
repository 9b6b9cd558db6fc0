"""Audit of numbers without gaps: what is wrong in the rows that hold them, by scope and period.

gap         numbers from `start` to the newest one that no row has, and that are not void
duplicate   a number that another row has too
void        a number that is void, and that a row has
disorder    a number below that of the row before, where the rows come in the order of a column
ahead       numbers above the counter, which will issue them again
unreadable  a value that is no number of the format, scope and period
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, tzinfo
from typing import Literal, NamedTuple

from allocator.errors import InvalidArgument, InvalidId
from allocator.schemes.gapless_numbers import LENGTHS, MAX_NUMBER, Group, NumberRule, Reset, first_day
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


def audit(
    rows: Iterable[tuple[Group, int] | Found],
    counters: Mapping[Group, int],
    void: Iterable[tuple[Group, int]] = (),
    *,
    start: int = 1,
) -> Iterator[Found]:
    """Audit rows, whose numbers rise in each group, against the counters of their groups.

    A row that is a `Found` already is yielded as it is. start: the first number of each group.
    """
    unused = sorted(void)
    never_used = frozenset(unused)
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
        if row in never_used:
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


def disorder(rows: Iterable[tuple[Group, int] | Found]) -> Iterator[Found]:
    """The findings where rows come in the order of events."""
    before: dict[Group, int] = {}
    for row in rows:
        if not isinstance(row, Found):
            group, n = row
            if n < before.get(group, n):
                yield Found("disorder", group, n, before[group])
            before[group] = n


def read_row(rule: NumberRule, zone: tzinfo, value: object, scope: object, at: object) -> tuple[Group, int] | Found:
    """The group and number of a row, or why it is unreadable. `scope` and `at`: None if no column holds them."""
    group = Group("" if scope is None else str(scope))
    try:
        period = period_of(rule, zone, at)
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


def period_of(rule: NumberRule, zone: tzinfo, at: object) -> str:
    """The period of a date, a datetime or an ISO text. A datetime without a time zone keeps its own date."""
    if at is None or rule.reset == "never":
        return ""
    if isinstance(at, datetime) and at.tzinfo is not None:
        at = at.astimezone(zone)
    try:
        return rule.period(rule.counted_day(date.fromisoformat(str(at)[:10])))
    except ValueError as error:
        raise InvalidId(f"{quoted(at)} is no date that names a {rule.reset}") from error


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
