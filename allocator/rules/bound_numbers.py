"""Findings of the doctor on numbers without gaps that are bound to a column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from allocator.errors import InvalidSetting
from allocator.rules.column_bindings import Placed, gone
from allocator.rules.findings import DANGER, NOTE, Finding
from allocator.rules.gapless_audit import Group, reset_of
from allocator.schemes.gapless_numbers import DIGITS, MAX_NUMBER, RESETS, NumberFormat, NumberRule, first_day, place

NEXT = 10
"""Look for the next 10 numbers of a counter in its column: a deleted row may leave out a single one."""
MOST = 1_000
"""The search for the newest row asks for ten times as many numbers each time, up to this many."""
ROUNDS = 100
"""The most queries of that search, so that a doctor's run ends."""
SHOWN = 10
"""Search the newest row of the first 10 wrong counters; the others are only counted."""


@dataclass(frozen=True, slots=True)
class NumberBinding(Placed):
    """A row of `allocator_number_binding`: the `Numbers` that a column holds, and the columns beside it.

    reset: used until there is a counter, whose period tells when the numbers restart; "" if not known.
    """

    name: str = ""
    format: str = "{n}"
    reset: str = ""
    start: int = 1
    timezone: str = "UTC"
    scope_column: str = ""
    period_column: str = ""
    order_column: str = ""

    def rule(self, counters: Collection[Group], reset: str = "") -> NumberRule:
        """The rule of the numbers. Raises `InvalidSetting` if rows would be counted in the wrong group.

        reset: overrides the reset that the counters tell.
        """
        resets: Any = reset or (reset_of(one.period for one in counters) if counters else self.reset or "never")
        made = NumberRule(self.name, NumberFormat(self.format), resets, self.start)
        if made.reset != "never" and made.format.is_bare and not self.period_column:
            raise InvalidSetting(
                f"the numbers of {self.name!r} restart each {made.reset}: give --period-column, or a --format that has "
                f"the {made.reset}"
            )
        if not self.scope_column and "scope" not in made.format.fields and any(one.scope for one in counters):
            raise InvalidSetting(
                f"the numbers of {self.name!r} have scopes: give --scope-column, or a --format with {{scope}}"
            )
        return made


@dataclass(frozen=True, slots=True)
class BoundNumbers:
    """A binding, with its column and its counters as they were read for the doctor.

    below: counters below the column: the number of each, and the newest number in a row. more: the count of others.
    orphan: a number in the column although no counter exists; "" for none.
    compared: the count of counters that were compared, newest periods first. is_partial: there are more.
    """

    binding: NumberBinding
    is_there: bool = True
    below: Mapping[Group, tuple[int, int]] = field(default_factory=dict)
    more: int = 0
    orphan: str = ""
    compared: int = 0
    is_partial: bool = False


def check_foretold(rule: NumberRule) -> None:
    """Raise `InvalidSetting` if the text of the next number depends on a date within its period."""
    unknown = [name for name in DIGITS if name in rule.format.fields and name not in RESETS[rule.reset]]
    if unknown:
        when = "never restart" if rule.reset == "never" else f"restart each {rule.reset}"
        raise InvalidSetting(
            f"the numbers of {rule.name!r} {when}, and their format {rule.format.template!r} has {{{unknown[0]}}}: the "
            "text of a number then depends on the day it is drawn, so the column cannot be searched for it; if they "
            "restart more often, add --reset year, month or day"
        )


def following(n: int, count: int = NEXT) -> range:
    """The next numbers after `n`."""
    return range(n + 1, min(n + count, MAX_NUMBER) + 1)


def written(rule: NumberRule, group: Group, numbers: Iterable[int]) -> list[str]:
    """Numbers of a group as the column holds them: as text."""
    return [rule.format.write(n, first_day(group.period), group.scope) for n in numbers]


def above(rows: Iterable[tuple[Group, int]], counters: Mapping[Group, int]) -> list[tuple[Group, int]]:
    """THE RULE: a counter issues the numbers above it, so no row may have one. Returns the rows that break it."""
    return [(group, n) for group, n in rows if group in counters and n > counters[group]]


def newest(n: int, taken: Callable[[range], Collection[int]]) -> int:
    """The newest number in a row, found by searching upwards from `n` to the first range without a row.

    taken: which numbers of a range are in rows.
    """
    count = NEXT
    for _ in range(ROUNDS):
        found = taken(following(n, count))
        if not found:
            break
        n, count = max(found), min(10 * count, MOST)
    return n


def findings(bound: BoundNumbers) -> list[Finding]:
    """A finding for each rule that the bound column breaks."""
    binding = bound.binding
    audit = f"allocator numbers audit {binding.place}"
    if not bound.is_there:
        return [gone(binding, f"numbers {binding.name!r} are", "numbers")]
    if bound.orphan:
        return [
            Finding(
                "bound-counter-gone",
                DANGER,
                f"{binding.place} holds {bound.orphan!r}, and {binding.name!r} has no counter: its next number "
                f"is {binding.start}",
                f"set each scope and period to its newest number, which this prints: {audit}",
            )
        ]
    found = [counter_below(binding, group, *numbers) for group, numbers in bound.below.items()]
    if bound.more:
        found.append(
            Finding(
                "counter-below-column",
                DANGER,
                f"{bound.more} more counters of {binding.name!r} are below {binding.place}",
                f"set each to its newest number, which this prints: {audit}",
            )
        )
    if bound.is_partial:
        found.append(
            Finding(
                "counters-not-looked-at",
                NOTE,
                f"compared only {bound.compared:,} counters of {binding.name!r} with {binding.place}, those of the "
                "newest periods; there are more",
                f"to compare all: {audit}",
            )
        )
    return found


def counter_below(binding: NumberBinding, group: Group, counter: int, row: int) -> Finding:
    scope, period = (f" --{name} {value}" if value else "" for name, value in group._asdict().items())
    return Finding(
        "counter-below-column",
        DANGER,
        f"{place(binding.name, *group)} is at {counter}, and {binding.place} holds numbers up to {row}: it will "
        "issue numbers that rows have already",
        f"allocator numbers set {binding.name} {row}{scope}{period}",
    )
