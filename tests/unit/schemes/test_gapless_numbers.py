"""Numbers without gaps, the rule: periods, formats and back, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.errors import InvalidArgument, InvalidId, InvalidSetting, InvalidTag
from allocator.schemes.gapless_numbers import MAX_NUMBER, Number, NumberFormat, NumberRule, day_of

DAY = date(2026, 3, 9)
NAIVE = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).replace(tzinfo=None)


def rule(template: str = "{n}", reset: str = "never", start: int = 1, year_starts: str = "01-01") -> NumberRule:
    return NumberRule("invoice", NumberFormat(template), reset, start, year_starts)  # type: ignore[arg-type]


# -- periods


def test_the_period_is_the_part_of_the_date_that_reset_names():
    for reset, period in [("never", ""), ("year", "2026"), ("month", "2026-03"), ("day", "2026-03-09")]:
        assert rule(reset=reset).period(DAY) == period, reset
        assert rule(reset=reset).period(date(1, 2, 3)) == "0001-02-03"[: len(period)], reset


def test_a_moment_is_counted_by_its_date_in_the_time_zone():
    end = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    berlin, quito = ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5))

    assert [day_of(end, zone).year for zone in (UTC, berlin, quito)] == [2026, 2027, 2026]
    assert day_of(end.astimezone(berlin), UTC) == date(2026, 12, 31)
    assert day_of(DAY, berlin) == DAY


def test_a_date_must_be_sure(subtests):
    for at in [NAIVE, "2026-01-01", 2026, None]:
        with subtests.test(at=at), pytest.raises(InvalidArgument, match="give it a tzinfo, or .* a timezone=|a date"):
            day_of(at, None)


def test_a_datetime_without_a_time_zone_is_local_time_of_the_zone_that_was_chosen():
    for zone in (UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5))):
        assert day_of(NAIVE, zone) == date(2026, 12, 31)
    assert day_of(NAIVE.replace(tzinfo=UTC), None) == date(2026, 12, 31)


# -- fiscal years, two digits of a year, quarters


def test_each_day_has_a_year_and_a_quarter_in_its_text():
    for year_starts, template, day, text, period in [
        ("04-01", "{year}-{n}", date(2026, 3, 31), "2025-7", "2025"),
        ("04-01", "{year}-{n}", date(2026, 4, 1), "2026-7", "2026"),
        ("04-01", "FY{yy}-{end_yy}/{n}", date(2027, 1, 1), "FY26-27/7", "2026"),
        ("04-01", "FY{end_yy}/{n}", date(2027, 3, 31), "FY27/7", "2026"),
        ("04-01", "FY{end_yy}/{n}", date(2099, 4, 1), "FY00/7", "2099"),
        ("04-01", "{year}Q{quarter}-{n}", date(2026, 6, 30), "2026Q1-7", "2026"),
        ("04-01", "{year}Q{quarter}-{n}", date(2026, 12, 31), "2026Q3-7", "2026"),
        ("04-01", "{year}Q{quarter}-{n}", date(2027, 1, 1), "2026Q4-7", "2026"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 4, 5), "2025Q4-7", "2025"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 4, 6), "2026Q1-7", "2026"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 7, 5), "2026Q1-7", "2026"),
        ("12-31", "{year}-{n}", date(2026, 12, 30), "2025-7", "2025"),
        ("12-31", "{year}-{n}", date(2026, 12, 31), "2026-7", "2026"),
        ("03-01", "{yy}-{n}", date(2028, 2, 29), "27-7", "2027"),
        ("01-02", "{year}-{n}", date(2026, 1, 1), "2025-7", "2025"),
        ("01-01", "{yy}-{n}", date(2000, 1, 1), "00-7", "2000"),
        ("01-01", "{yy}-{n}", date(2099, 12, 31), "99-7", "2099"),
        ("01-01", "{year}/{yy}Q{quarter}-{n}", DAY, "2026/26Q1-7", "2026"),
        ("01-01", "{yy}Q{quarter}{month}{day}-{n}", date(2026, 12, 31), "26Q41231-7", "2026"),
    ]:
        made = rule(template, "year", year_starts=year_starts)
        counted = made.counted_day(day)
        number = made.number(7, "", made.period(counted), counted)

        assert number == Number(7, text, "", period), (year_starts, template, day)
        assert made.parse(text) == number, (year_starts, template, day)
    assert rule("{yy}{month}-{n}", "month").parse("2603-7").period == "2026-03"


def test_years_and_quarters_that_the_format_would_not_write():
    for template, year_starts, text in [
        ("{year}/{yy}-{n}", "01-01", "2026/27-7"),
        ("{yy}-{end_yy}-{n}", "04-01", "26-28-7"),
        ("{year}Q{quarter}-{n}", "04-01", "2026Q5-7"),
        ("{year}Q{quarter}-{n}", "01-01", "2026Q0-7"),
        ("{year}Q{quarter}-{month}-{n}", "01-01", "2026Q1-04-7"),
    ]:
        with pytest.raises(InvalidId, match="is no number of the format"):
            rule(template, "year", year_starts=year_starts).parse(text)


def test_a_year_whose_text_would_repeat_is_refused():
    for year_starts, template, day, words in [
        ("01-01", "{yy}-{n}", date(1999, 12, 31), "is in the year 1999, but '{yy}-{n}' is for 2000 to 2099"),
        ("01-01", "{yy}-{n}", date(2100, 1, 1), "at=2100-01-01 is in the year 2100"),
        ("04-01", "{yy}-{n}", date(2000, 3, 31), "at=2000-03-31 is in the year 1999"),
        ("04-01", "{end_yy}-{n}", date(2100, 4, 1), "is in the year 2100"),
        ("04-01", "{n}", date(1, 1, 1), "is in the year 0, but '{n}' is for 1 to 9999"),
    ]:
        with pytest.raises(InvalidArgument, match=words):
            rule(template, "year", year_starts=year_starts).counted_day(day)
    assert rule("{year}/{yy}-{n}", "year").counted_day(date(1999, 1, 1)) == date(1999, 1, 1)


def test_fiscal_years_that_are_refused(subtests):
    for year_starts in ["02-29", "4-1", "13-01", "04-31", "00-01", "0401", "W10-1", "04-01 ", "", None, 401]:
        with subtests.test(year_starts=year_starts), pytest.raises(InvalidSetting) as refused:
            rule("{year}-{n}", "year", year_starts=year_starts)
        sentence = "year_starts must be a month and day that each year has, as '04-01', got "
        assert str(refused.value) == f"{sentence}{year_starts!r}"
    for template, reset, year_starts, words in [
        ("{n}", "never", "04-01", "year_starts='04-01' needs reset='year', got reset='never'"),
        ("{year}-{month}-{n}", "month", "04-01", "needs reset='year', got reset='month'"),
        ("{year}-{month}-{n}", "year", "04-01", "a format with {month} or {day} is for years that start on 01-01"),
        ("{year}-{end_yy}-{n}", "year", "01-01", "one with {end_yy} for those that do not, got '{year}-{end_yy}-{n}'"),
        ("{quarter}-{n}", "year", "04-01", "the format must hold {year}"),
    ]:
        with subtests.test(template=template, reset=reset), pytest.raises(InvalidSetting, match=words):
            rule(template, reset, year_starts=year_starts)


# -- formats


def test_a_number_is_written_and_read_back():
    for template, text in [
        ("{n}", "7"),
        ("INV-{year}-{n:05}", "INV-2026-00007"),
        ("{year}{month}{day}{n:03}", "20260309007"),
        ("{n}{year}", "72026"),
        ("{scope}/{n:02}", "tenant-7/07"),
        ("{n}-{scope}", "7-tenant-7"),
        ("№ {n} {{{scope}}}", "№ 7 {tenant-7}"),
        ("{n:019}", "0000000000000000007"),
    ]:
        made = NumberFormat(template)

        assert made.write(7, DAY, "tenant-7") == text, template
        assert made.read(text)["n"].lstrip("0") == "7", template


LETTERS = "09azAZ"
SEPARATORS = ("", "-", "1", "a", ".7")


@settings(max_examples=100)
@given(
    n=st.integers(1, MAX_NUMBER),
    day=st.dates(),
    scope=st.text(LETTERS + "_.:-", min_size=1, max_size=5).map("0".__add__),
    fields=st.permutations(["{n:04}", "{year}", "{yy}", "{quarter}", "{month}", "{day}", "{scope}"]),
    between=st.lists(st.sampled_from(SEPARATORS), min_size=7, max_size=7),
)
def test_whatever_a_format_writes_it_reads_back_exactly(n, day, scope, fields, between):
    template = "".join(text + field for text, field in zip(between, fields, strict=True))
    first, last = sorted((fields.index("{n:04}"), fields.index("{scope}")))
    if "".join(between[first + 1 : last + 1]).strip("17"):
        made = rule(template, "day")
        number = made.number(n, scope, made.period(day), day)
        assert made.parse(number.text) == number == Number(n, number.text, scope, day.isoformat())
    else:
        with pytest.raises(InvalidSetting, match="a character that is no digit"):
            rule(template, "day")


def test_what_the_format_would_not_write_is_no_number(subtests):
    for text in ["INV-2026-0007", "INV-2026-000007", "INV-2026-00000", "inv-2026-00007", "", None, 7]:
        with subtests.test(text=text), pytest.raises(InvalidId, match="is no number of the format 'INV-{year}-{n:05}'"):
            NumberFormat("INV-{year}-{n:05}").read(text)


def test_digits_of_another_script_and_lines_are_no_number():
    for text in ("\u0667", "7\n", "\u06607", "9223372036854775808"):
        with pytest.raises(InvalidId):
            NumberFormat("{n}").read(text)
    with pytest.raises(InvalidId, match="there is no date 2026-02-30"):
        NumberFormat("{year}{month}{day}-{n}").read("20260230-1")


def test_formats_that_are_refused(subtests):
    for template, words in [
        ("", "1 to 128 printable characters"),
        ("x" * 126 + "{n}", "1 to 128 printable characters"),
        ("{n}\n", "1 to 128 printable characters"),
        (None, "1 to 128 printable characters"),
        ("INV", "holds {n} once"),
        ("{n}{n}", "holds {n} once, and no field twice"),
        ("{year}-{year}-{n}", "no field twice"),
        ("{number}", "the fields of a format are"),
        ("{n:5}", "the fields of a format are"),
        ("{n:05d}", "the fields of a format are"),
        ("{n!r}", "the fields of a format are"),
        ("{month:02}-{n}", "the fields of a format are"),
        ("{n", "the fields of a format are"),
        ("n}", "the fields of a format are"),
        ("{n:020}", "at most 19 digits"),
        ("{scope}{n}", "a character that is no digit"),
        ("{n}20{year}{scope}", "a character that is no digit"),
    ]:
        with subtests.test(template=template), pytest.raises(InvalidSetting, match=words):
            NumberFormat(template)


# -- the rule


def test_a_format_must_hold_the_period_or_texts_would_come_again(subtests):
    for reset, missing in [("year", "year"), ("month", "month"), ("day", "day")]:
        with subtests.test(reset=reset):
            whole = {"year": "{year}-", "month": "{year}-{month}-", "day": "{year}-{month}-{day}-"}[reset]

            assert rule(whole + "{n}", reset).reset == reset
            assert rule("{n:04}", reset).reset == reset
            with pytest.raises(InvalidSetting, match=f"restart each {reset}, so the format must hold {{{missing}}}"):
                rule(whole.replace(f"{{{missing}}}-", "") + "no. {n}", reset)


def test_a_number_has_its_text_scope_and_period():
    made = rule("{year}-{n:02}", "year")

    assert made.number(7, "a", "2026", DAY) == Number(7, "2026-07", "a", "2026")
    assert str(made.number(5, "", "2026", DAY)) == "2026-05"


def test_the_day_is_asked_for_where_it_matters():
    """To a period, or to a text; other numbers need no clock."""
    for template, reset, has_dates in [
        ("{n}", "never", False),
        ("{scope}-{n}", "never", False),
        ("{n}", "year", True),
        ("{n} of {month}", "never", True),
        ("{n}/{yy}", "never", True),
        ("Q{quarter}-{n}", "never", True),
    ]:
        assert rule(template, reset).has_dates is has_dates, (template, reset)


def test_a_text_says_scope_and_period_or_they_are_given():
    yearly = rule("{scope}-{year}-{n}", "year")
    bare = rule("{n}", "year")

    assert yearly.parse("a-2026-7") == Number(7, "a-2026-7", "a", "2026")
    assert yearly.parse("a-2026-7", scope="a", period="2026").n == 7
    assert bare.parse("7", scope="a", period="2026") == Number(7, "7", "a", "2026")
    with pytest.raises(InvalidId, match="is of the scope 'a', not of 'b'"):
        yearly.parse("a-2026-7", scope="b")
    with pytest.raises(InvalidId, match="is of the period '2026', not of '2027'"):
        yearly.parse("a-2026-7", period="2027")


def test_scopes():
    made = rule()

    class Journal(int, Enum):
        SALES = 8

    assert [made.check_scope(scope) for scope in ("", "tenant-7", 7, Journal.SALES)] == ["", "tenant-7", "7", "8"]
    assert made.check_scope(UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    for wrong in (None, True, -1, "a b", "é", "x" * 65, b"a"):
        with pytest.raises(InvalidTag, match=r"the scope of 'invoice' is empty, or 1 to 64 of "):
            made.check_scope(wrong)
    with pytest.raises(InvalidTag, match="got ''$"):
        rule("{scope}-{n}").check_scope("")


def test_what_a_rule_is_made_of():
    with pytest.raises(InvalidTag):
        NumberRule("in voice", NumberFormat("{n}"))
    for start in (0, MAX_NUMBER + 1, True, "1"):
        with pytest.raises(InvalidSetting, match="start must be"):
            rule(start=start)
    with pytest.raises(InvalidSetting, match="reset must be 'never', 'year', 'month' or 'day', got 'weekly'"):
        rule(reset="weekly")
