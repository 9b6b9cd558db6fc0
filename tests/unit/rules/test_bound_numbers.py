"""Numbers bound to a column: each rule of the doctor, from plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.distinct import none_twice

from allocator.errors import InvalidSetting
from allocator.rules.bound_numbers import (
    BoundNumbers,
    NumberBinding,
    above,
    check_foretold,
    findings,
    following,
    newest,
    written,
)
from allocator.rules.gapless_audit import Group
from allocator.schemes.gapless_numbers import MAX_NUMBER, NumberFormat, NumberRule

PLACE = "public.invoice.number"
A, B = Group("a", "2026"), Group("b", "2026")
BINDING = NumberBinding(PLACE, "invoice", "INV-{year}-{n:03}", "year", scope_column="tenant")
SOUND = BoundNumbers(BINDING, compared=2)


def judged(bound: BoundNumbers) -> list[tuple[str, str, str]]:
    return [(one.name, str(one.severity), one.mend) for one in findings(bound)]


def test_nothing_is_wrong_with_counters_that_are_above_their_column():
    assert judged(SOUND) == []


WRONG = {
    "the column is gone": (
        replace(SOUND, is_there=False),
        ("bound-column-gone", "note", f"allocator numbers unbind {PLACE}"),
    ),
    "the counter is gone": (
        replace(SOUND, orphan="INV-2026-001"),
        (
            "bound-counter-gone",
            "danger",
            f"set each scope and period to its newest number, which this prints: allocator numbers audit {PLACE}",
        ),
    ),
    "a counter is below": (
        replace(SOUND, below={A: (3, 7)}),
        ("counter-below-column", "danger", "allocator numbers set invoice 7 --scope a --period 2026"),
    ),
    "the only counter is below": (
        replace(SOUND, below={Group(): (3, 7)}),
        ("counter-below-column", "danger", "allocator numbers set invoice 7"),
    ),
    "not all were compared": (
        replace(SOUND, is_partial=True),
        ("counters-not-looked-at", "note", f"to compare all: allocator numbers audit {PLACE}"),
    ),
}


def test_each_rule_has_its_finding():
    for case, (bound, told) in WRONG.items():
        assert judged(bound) == [told], case


def test_a_row_above_its_counter_is_found_and_no_other():
    counters = {A: 5, B: 1}

    assert above([(A, 5), (A, 6), (B, 1), (Group("c"), 9), (Group("a", "2025"), 9)], counters) == [(A, 6)]
    assert above([(A, 6)], {A: 6}) == []


def test_the_numbers_that_follow_end_at_the_greatest_one():
    assert list(following(5)) == list(range(6, 16))
    assert list(following(MAX_NUMBER - 2)) == [MAX_NUMBER - 1, MAX_NUMBER]
    assert list(following(MAX_NUMBER)) == []


def test_numbers_are_written_with_scope_and_period():
    rule = NumberRule("invoice", NumberFormat("{scope}/{year}-{month}/{n:03}"), "month")

    assert written(rule, Group("a", "2026-03"), [9, 1000]) == ["a/2026-03/009", "a/2026-03/1000"]


@given(st.sets(st.integers(1, 3000), max_size=400), st.integers(0, 100))
def test_after_the_newest_row_the_next_ten_are_free(rows, n):
    found = newest(n, rows.intersection)

    none_twice(rows.intersection(following(found)))
    assert found == n or (found > n and found in rows)


def test_the_way_to_the_newest_row_ends():
    """A column with a row for each number is not read to its end."""
    asked: list[range] = []
    found = newest(0, lambda numbers: asked.append(numbers) or numbers)

    assert len(asked) == 100
    assert found == asked[-1][-1] < 100_000


# -- the rule of a binding


def test_the_counters_tell_when_numbers_restart():
    bare = replace(BINDING, format="{n}", period_column="booked", reset="year")

    assert bare.rule([Group("a", "2026-03")]).reset == "month"
    assert bare.rule([Group("a", "2026"), Group("a", "2026-03-01")]).reset == "day"
    assert bare.rule([Group("a")]).reset == "never"
    assert bare.rule([]).reset == "year"
    assert bare.rule([Group("a", "2026")], "day").reset == "day"
    assert replace(bare, reset="").rule([]).reset == "never"


def test_rows_of_the_wrong_group_are_refused():
    with pytest.raises(InvalidSetting, match="'invoice' restart each year: give --period-column, or a --format that"):
        replace(BINDING, format="{n}").rule([A])
    with pytest.raises(InvalidSetting, match="'invoice' have scopes: give --scope-column, or a --format with {scope}"):
        replace(BINDING, scope_column="").rule([A])
    assert replace(BINDING, scope_column="", format="{scope}-{year}-{n}").rule([A]).reset == "year"
    assert replace(BINDING, scope_column="").rule([Group("", "2026")]).reset == "year"


def test_a_date_that_the_period_does_not_tell_is_refused(subtests):
    for template, reset, when in [
        ("{year}-{n}", "never", "never restart, and their format '{year}-{n}' has {year}"),
        ("{year}{day}-{n}", "year", "restart each year, and their format '{year}{day}-{n}' has {day}"),
    ]:
        with subtests.test(template=template), pytest.raises(InvalidSetting, match=f"'invoice' {when}"):
            check_foretold(NumberRule("invoice", NumberFormat(template), reset))


def test_a_date_that_the_period_tells_is_taken():
    for template, reset in [("{n}", "day"), ("{year}-{month}-{n}", "month"), ("{n:03}", "never")]:
        check_foretold(NumberRule("invoice", NumberFormat(template), reset))
