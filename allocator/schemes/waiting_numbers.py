"""Numbers without gaps for rows that wait: which rows, in which groups, in which order, how many at once.

A row waits while its number is NULL and its scope and date are not: a draft without a date does not wait.
Rows are counted by group: one scope and period, which share a counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, tzinfo
from typing import NamedTuple

from allocator.errors import InvalidArgument
from allocator.schemes.gapless_numbers import Group, Number, NumberRule, day_of
from allocator.schemes.shared.argument_checks import quoted

AT_ONCE = 1_000
"""Rows that one transaction numbers: it holds their locks and the counter's until it ends."""

Key = tuple[object, ...]
"""The primary key of a row."""


class WaitingRow(NamedTuple):
    """A row without a number, as it was read. scope, at: None if no column holds them."""

    key: Key
    scope: object = None
    at: object = None


class Due(NamedTuple):
    """A waiting row, the group in which it is counted, and the date that its number shows."""

    row: WaitingRow
    group: Group
    day: date


def due(rule: NumberRule, zone: tzinfo | None, row: WaitingRow) -> Due:
    """Find the group of a row by its own scope and date. Raises `InvalidArgument`."""
    try:
        scope = "" if row.scope is None else rule.check_scope(row.scope)
        day = rule.counted_day(day_of(row.at, zone)) if rule.has_dates else date.min
    except InvalidArgument as error:
        key = row.key[0] if len(row.key) == 1 else row.key
        raise type(error)(f"the row {quoted(key)} gets no number: {error}") from error
    return Due(row, Group(scope, rule.period(day)), day)


class Sorted(NamedTuple):
    """Groups that wait, sorted, each with its rows in their order; and what is wrong with other rows."""

    groups: dict[Group, list[Due]]
    wrong: list[InvalidArgument]


def in_groups(rule: NumberRule, zone: tzinfo | None, rows: Iterable[WaitingRow]) -> Sorted:
    """Group rows. A row that cannot be numbered holds up no other one."""
    groups: dict[Group, list[Due]] = {}
    wrong: list[InvalidArgument] = []
    for row in rows:
        try:
            one = due(rule, zone, row)
        except InvalidArgument as error:
            wrong.append(error)
        else:
            groups.setdefault(one.group, []).append(one)
    return Sorted(dict(sorted(groups.items())), wrong)


def numbered(rule: NumberRule, rows: Sequence[Due], last: int) -> list[tuple[Key, Number]]:
    """The numbers of rows in their order; `last` is that of the last one, to which the counter was raised."""
    first = last - len(rows) + 1
    return [(one.row.key, rule.number(n, *one.group, one.day)) for n, one in enumerate(rows, first)]
