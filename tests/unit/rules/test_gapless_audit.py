"""The audit of numbers without gaps, over plain rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from allocator.rules.gapless_audit import Found, audit, disorder, is_period, read_row
from allocator.schemes.gapless_numbers import Group, NumberFormat, NumberRule

ALL = Group()
A, B = Group("a", "2026"), Group("b", "2026")


def judged(
    numbers: list[int], counter: int | None = None, void: tuple[int, ...] = (), **options: object
) -> list[Found]:
    """Of one group."""
    counters = {ALL: max(numbers) if counter is None else counter}
    return list(audit(((ALL, n) for n in numbers), counters, ((ALL, n) for n in void), **options))  # type: ignore[arg-type]


def test_numbers_without_a_gap_are_sound():
    assert judged([1, 2, 3]) == []
    assert judged([], 0) == []


def test_a_gap_is_a_number_that_no_row_has():
    """Also above the newest row: the counter has given it."""
    for numbers, counter, gaps in [
        ([1, 2, 5], 5, [(3, 4)]),
        ([2, 4, 6], 6, [(1, 1), (3, 3), (5, 5)]),
        ([1, 2], 4, [(3, 4)]),
        ([], 2, [(1, 2)]),
        ([7, 9], 9, [(1, 6), (8, 8)]),
    ]:
        assert judged(numbers, counter) == [Found("gap", ALL, *gap) for gap in gaps], numbers


def test_numbers_that_are_void_are_no_gap():
    assert judged([1, 4], 6, void=(2, 3, 5, 6)) == []
    assert judged([1, 4], 4, void=(2,)) == [Found("gap", ALL, 3, 3)]
    assert judged([1, 2], void=(2,)) == []  # its row was kept


def test_a_void_number_of_a_group_that_is_not_there_is_left_out():
    assert list(audit([], {A: 1}, [(A, 1), (B, 1)])) == []


def test_numbers_begin_at_start():
    assert judged([100, 101], start=100) == []
    assert judged([101], start=100) == [Found("gap", ALL, 100, 100)]
    assert judged([1, 100], start=100) == []


def test_a_number_that_two_rows_have_is_a_duplicate():
    assert judged([1, 2, 2, 2, 3]) == [Found("duplicate", ALL, 2, 2)] * 2


def test_disorder_is_a_number_below_the_one_before():
    """Told where the rows come in the order of events, and once for each step back."""
    for numbers, expected in (([1, 2, 5, 3, 4], [(3, 5)]), ([2, 2, 1], [(1, 2)]), ([1, 2, 2, 3], [])):
        rows = [(group, n) for n in numbers for group in (A, B)]
        assert list(disorder([Found("unreadable", A), *rows])) == [
            Found("disorder", group, *pair) for pair in expected for group in (A, B)
        ]


def test_numbers_above_the_counter_will_be_given_again():
    assert judged([1, 2, 3, 4], 2) == [Found("ahead", ALL, 3, 4)]
    assert list(audit([(A, 1), (A, 2)], {})) == [Found("ahead", A, 1, 2)]
    assert judged([1, 5], 3) == [Found("gap", ALL, 2, 4), Found("ahead", ALL, 4, 5)]
    assert judged([100, 103], 0, start=100) == [Found("gap", ALL, 101, 102), Found("ahead", ALL, 100, 103)]
    assert judged([1, 2], 2) == []


def test_each_scope_and_period_is_judged_by_itself():
    rows = [(A, 1), (B, 1), (A, 2), (B, 3), (A._replace(period="2027"), 1)]
    assert list(audit(rows, {A: 3, B: 3, A._replace(period="2027"): 1}, [(B, 2)])) == [Found("gap", A, 3, 3)]


@given(st.lists(st.integers(1, 40)), st.integers(0, 45), st.sets(st.integers(1, 40)))
def test_it_agrees_with_sets(numbers, counter, void):
    found = judged(sorted(numbers), counter, tuple(void))
    newest = max([counter, *numbers])
    told = [n for one in found if one.kind == "gap" for n in range(one.first, one.last + 1)]

    assert told == sorted(set(range(1, newest + 1)) - set(numbers) - void)
    assert len([one for one in found if one.kind == "duplicate"]) == len(numbers) - len(set(numbers))
    assert [one.last for one in found if one.kind == "ahead"] == ([newest] if newest > counter else [])


# -- rows as a database returns them

YEARLY = NumberRule("invoice", NumberFormat("INV-{year}-{n:05}"), "year")
SCOPED = NumberRule("invoice", NumberFormat("{scope}/{n}"))
BARE = NumberRule("invoice", NumberFormat("{n}"), "year")
FISCAL = NumberRule("invoice", NumberFormat("{yy}Q{quarter}-{n}"), "year", year_starts="04-01")
BARE_FISCAL = NumberRule("invoice", NumberFormat("{n}"), "year", year_starts="04-01")
BERLIN = ZoneInfo("Europe/Berlin")


def test_a_row_is_read():
    for rule, row, read in [
        (YEARLY, ("INV-2026-00007", "a", None), (A, 7)),
        (YEARLY, ("INV-2026-00007", "a", date(2026, 3, 9)), (A, 7)),
        (SCOPED, ("a/7", None, None), (Group("a"), 7)),
        (SCOPED, ("a/7", "a", None), (Group("a"), 7)),
        (BARE, (7, 12, date(2026, 3, 9)), (Group("12", "2026"), 7)),
        (BARE, (Decimal(7), UUID(int=1), "2026-03-09"), (Group("00000000-0000-0000-0000-000000000001", "2026"), 7)),
        (BARE, ("7", None, "2026-03-09 10:00"), (Group("", "2026"), 7)),
        (BARE, (7, None, datetime(2025, 12, 31, 23, 30, tzinfo=UTC)), (Group("", "2026"), 7)),
        (FISCAL, ("26Q4-7", None, date(2027, 3, 31)), (Group("", "2026"), 7)),
        (BARE_FISCAL, (7, None, "2026-03-31 10:00"), (Group("", "2025"), 7)),
        (BARE_FISCAL, (7, None, datetime(2026, 3, 31, 23, 30, tzinfo=UTC)), (Group("", "2026"), 7)),
    ]:
        assert read_row(rule, BERLIN, *row) == read, (rule, row)


def test_what_is_no_number_is_told():
    for rule, row, why in [
        (YEARLY, ("INV-2026-7", "a", None), "is no number of the format"),
        (YEARLY, ("draft", "a", None), "is no number of the format"),
        (YEARLY, ("INV-2026-00007", "a", date(2027, 1, 1)), "is of the period '2026'"),
        (SCOPED, ("a/7", "b", None), "is of the scope 'a'"),
        (BARE, (0, None, date(2026, 1, 1)), "is no number from 1 to"),
        (BARE, (Decimal("1.5"), None, date(2026, 1, 1)), "is no number from 1 to"),
        (BARE, (7, None, "soon"), "is no date that names a year"),
        (BARE, (7, None, 2026), "is no date that names a year"),
        (BARE_FISCAL, (7, None, "2026-04"), "is no date that names a year"),
        (BARE_FISCAL, (7, None, date(1, 1, 1)), "is no date that names a year"),
        (FISCAL, ("26Q4-7", None, date(2026, 3, 31)), "is of the period '2026'"),
    ]:
        found = read_row(rule, UTC, *row)

        assert isinstance(found, Found), (rule, row)
        assert found.kind == "unreadable", (rule, row)
        assert why in found.text, (rule, row)
        assert list(audit([found], {})) == [found], (rule, row)


def test_a_period_is_the_beginning_of_a_date():
    for text in ["", "2026", "2026-03", "2026-03-09"]:
        assert is_period(text), text


def test_all_else_is_no_period():
    for text in ["26", "2026-3", "2026-13", "2026-02-30", "2026-", "2026-03-09T", "20260309"]:
        assert not is_period(text), text
