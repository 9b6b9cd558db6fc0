"""Which rows wait together, in which order, and the numbers that they get."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from allocator.errors import InvalidArgument, InvalidTag
from allocator.schemes.gapless_numbers import Group, Number, NumberFormat, NumberRule
from allocator.schemes.waiting_numbers import WaitingRow, in_groups, numbered

yearly = NumberRule("invoice", NumberFormat("INV-{year}-{n:03}"), "year")
MARCH, EARLIER = date(2026, 3, 9), date(2025, 12, 31)


def keys(found: dict[Group, list]) -> list[tuple[tuple[str, str], list[object]]]:
    return [(tuple(group), [one.row.key[0] for one in due]) for group, due in found.items()]


def test_rows_of_a_scope_and_period_wait_together_in_the_order_given():
    rows = [
        WaitingRow((9,), 7, MARCH),
        WaitingRow((2,), 10, MARCH),
        WaitingRow((4,), 7, EARLIER),
        WaitingRow((1,), 7, MARCH),
        WaitingRow((3,), "a", MARCH),
        WaitingRow((5,), "A", MARCH),
    ]
    groups, wrong = in_groups(yearly, None, rows)

    assert keys(groups) == [
        (("10", "2026"), [2]),
        (("7", "2025"), [4]),
        (("7", "2026"), [9, 1]),
        (("A", "2026"), [5]),
        (("a", "2026"), [3]),
    ]
    assert wrong == []


def test_the_last_row_gets_the_number_to_which_the_counter_was_raised():
    groups, _ = in_groups(yearly, None, [WaitingRow((key,), 7, MARCH) for key in (9, 1, 5)])

    assert numbered(yearly, groups[Group("7", "2026")], 12) == [
        ((9,), Number(10, "INV-2026-010", "7", "2026")),
        ((1,), Number(11, "INV-2026-011", "7", "2026")),
        ((5,), Number(12, "INV-2026-012", "7", "2026")),
    ]


def test_each_row_shows_its_own_date_and_scope():
    daily = NumberRule("invoice", NumberFormat("{scope}/{year}{month}{day}/{n}"), "month")
    groups, _ = in_groups(daily, None, [WaitingRow((n,), "eu", date(2026, 3, n)) for n in (9, 31)])

    texts = [number.text for _, number in numbered(daily, groups[Group("eu", "2026-03")], 2)]
    assert texts == ["eu/20260309/1", "eu/20260331/2"]


def test_the_period_is_by_the_time_zone_and_the_fiscal_year():
    fiscal = NumberRule("bill", NumberFormat("FY{yy}/{n}"), "year", year_starts="04-01")
    midnight = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    cases = [
        (yearly, ZoneInfo("Europe/Berlin"), midnight, "2027"),
        (yearly, None, midnight, "2026"),
        (fiscal, None, date(2027, 3, 31), "2026"),
        (fiscal, None, date(2027, 4, 1), "2027"),
    ]
    for rule, zone, at, period in cases:
        assert list(in_groups(rule, zone, [WaitingRow((1,), 7, at)]).groups) == [Group("7", period)]


def test_without_scope_and_dates_all_rows_wait_together():
    plain = NumberRule("case", NumberFormat("{n}"))
    groups, _ = in_groups(plain, None, [WaitingRow((1, "a")), WaitingRow((1, "b"))])

    assert numbered(plain, groups[Group()], 5) == [((1, "a"), Number(4, "4")), ((1, "b"), Number(5, "5"))]


def test_a_row_that_no_number_fits_is_named_and_holds_up_no_other_one():
    short = NumberRule("bill", NumberFormat("{yy}/{n}"), "year")
    rows = [
        WaitingRow((1,), "two words", MARCH),
        WaitingRow((2,), 7, date(1999, 1, 1)),
        WaitingRow((3, "x"), 7, datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
        WaitingRow((4,), UUID(int=1), MARCH),
    ]
    groups, wrong = in_groups(short, None, rows)

    assert keys(groups) == [((str(UUID(int=1)), "2026"), [4])]
    assert [type(one) for one in wrong] == [InvalidTag, InvalidArgument, InvalidArgument]
    assert str(wrong[0]).startswith("the row 1 gets no number: the scope of 'bill' is empty, or 1 to 64")
    assert str(wrong[1]).startswith("the row 2 gets no number: at=1999-01-01 is in the year 1999, but")
    assert str(wrong[2]).startswith("the row (3, 'x') gets no number: at=datetime.datetime(2026, 1, 1, 0, 0) has no")
