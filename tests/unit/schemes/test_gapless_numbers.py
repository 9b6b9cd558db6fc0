"""Numbers without gaps, the rule: periods, formats and back, and what is refused."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import get_args
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.errors import InvalidArgument, InvalidId, InvalidSetting, InvalidTag
from allocator.schemes.gapless_audit import Found, Kind, audit, disorder, read_row
from allocator.schemes.gapless_numbers import MAX_NUMBER, Group, Number, NumberFormat, NumberRule, day_of, reset_of
from allocator.schemes.waiting_numbers import WaitingRow, in_groups, numbered

DAY = date(2026, 3, 9)
NAIVE = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).replace(tzinfo=None)


def rule(template: str = "{n}", reset: str = "never", start: int = 1, year_starts: str = "01-01") -> NumberRule:
    return NumberRule("invoice", NumberFormat(template), reset, start, year_starts)  # type: ignore[arg-type]


# -- periods


def test_a_period_is_the_part_of_the_date_that_reset_names():
    for reset, period in [("never", ""), ("year", "2026"), ("month", "2026-03"), ("day", "2026-03-09")]:
        assert rule(reset=reset).period(DAY) == period, reset
        assert rule(reset=reset).period(date(1, 2, 3)) == "0001-02-03"[: len(period)], reset
        assert reset_of(period) == reset
    for text in ["26", "2026-3", "2026-13", "2026-02-30", "2026-", "2026-03-09T", "20260309"]:
        with pytest.raises(ValueError, match=r"is no year, month or day|Invalid|month must|day is out"):
            reset_of(text)


def test_a_moment_is_counted_by_its_date_in_the_time_zone():
    """And a datetime without one is local time of the zone that was chosen."""
    end = datetime(2026, 12, 31, 23, 30, tzinfo=UTC)
    zones = berlin, quito = ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5))

    assert [day_of(end, zone).year for zone in (UTC, None, berlin, quito)] == [2026, 2026, 2027, 2026]
    assert {day_of(NAIVE, zone) for zone in (UTC, *zones)} == {date(2026, 12, 31)}
    assert day_of(end.astimezone(berlin), UTC) == date(2026, 12, 31)
    assert day_of(DAY, berlin) == DAY


@pytest.mark.parametrize("at", [NAIVE, "2026-01-01", 2026, None])
def test_a_date_must_be_sure(at):
    with pytest.raises(InvalidArgument, match="give it a tzinfo, or .* a timezone=|a date"):
        day_of(at, None)


# -- fiscal years, two digits of a year, quarters


def test_each_day_has_a_year_and_a_quarter_in_its_text():
    for year_starts, template, day, text, period in [
        ("04-01", "{year}-{n}", date(2026, 3, 31), "2025-7", "2025"),
        ("04-01", "{year}-{n}", date(2026, 4, 1), "2026-7", "2026"),
        ("04-01", "FY{yy}-{end_yy}/{n}", date(2027, 1, 1), "FY26-27/7", "2026"),
        ("04-01", "FY{end_yy}/{n}", date(2099, 4, 1), "FY00/7", "2099"),
        ("04-01", "{year}Q{quarter}-{n}", date(2026, 6, 30), "2026Q1-7", "2026"),
        ("04-01", "{year}Q{quarter}-{n}", date(2027, 1, 1), "2026Q4-7", "2026"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 4, 5), "2025Q4-7", "2025"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 4, 6), "2026Q1-7", "2026"),
        ("04-06", "{year}Q{quarter}-{n}", date(2026, 7, 5), "2026Q1-7", "2026"),
        ("12-31", "{year}-{n}", date(2026, 12, 30), "2025-7", "2025"),
        ("03-01", "{yy}-{n}", date(2028, 2, 29), "27-7", "2027"),
        ("01-02", "{year}-{n}", date(2026, 1, 1), "2025-7", "2025"),
        ("01-01", "{yy}-{n}", date(2000, 1, 1), "00-7", "2000"),
        ("01-01", "{yy}-{n}", date(2099, 12, 31), "99-7", "2099"),
        ("01-01", "{yy}Q{quarter}{month}{day}-{n}", date(2026, 12, 31), "26Q41231-7", "2026"),
    ]:
        made = rule(template, "year", year_starts=year_starts)
        counted = made.counted_day(day)
        number = made.number(7, "", made.period(counted), counted)

        assert number == Number(7, text, "", period), (year_starts, template, day)
        assert str(number) == text
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
        ("INV-{year}-{n:05}", "INV-2026-00007"),
        ("{n}{year}", "72026"),
        ("{scope}/{n:02}", "tenant-7/07"),
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


@pytest.mark.parametrize(
    ("template", "text"),
    [
        *(
            ("INV-{year}-{n:05}", text)
            for text in ("INV-2026-0007", "INV-2026-000007", "INV-2026-00000", "inv-2026-00007", "", None, 7)
        ),
        *(("{n}", text) for text in ("\u0667", "7\n", "\u06607", "9223372036854775808")),
    ],
)
def test_what_the_format_would_not_write_is_no_number(template, text):
    """Digits of another script and lines neither."""
    with pytest.raises(InvalidId, match=f"is no number of the format '{template}'"):
        NumberFormat(template).read(text)
    with pytest.raises(InvalidId, match="there is no date 2026-02-30"):
        NumberFormat("{year}{month}{day}-{n}").read("20260230-1")


REFUSED = {
    "1 to 128 printable characters": ["", "x" * 126 + "{n}", "{n}\n", None],
    "holds {n} once, and no field twice": ["INV", "{n}{n}", "{year}-{year}-{n}"],
    "the fields of a format are": ["{number}", "{n:5}", "{n:05d}", "{n!r}", "{month:02}-{n}", "{n", "n}"],
    "at most 19 digits": ["{n:020}"],
    "a character that is no digit": ["{scope}{n}", "{n}20{year}{scope}"],
}


def test_formats_that_are_refused(subtests):
    for words, templates in REFUSED.items():
        for template in templates:
            with subtests.test(template=template), pytest.raises(InvalidSetting, match=words):
                NumberFormat(template)


# -- the rule


@pytest.mark.parametrize(
    ("reset", "whole"), [("year", "{year}-"), ("month", "{year}-{month}-"), ("day", "{year}-{month}-{day}-")]
)
def test_a_format_must_hold_the_period_or_texts_would_come_again(reset, whole):
    assert rule(whole + "{n}", reset).reset == rule("{n:04}", reset).reset == reset
    with pytest.raises(InvalidSetting, match=f"restart each {reset}, so the format must hold {{{reset}}}"):
        rule(whole.replace(f"{{{reset}}}-", "") + "no. {n}", reset)


def test_the_day_is_asked_for_where_it_matters():
    """To a period, or to a text; other numbers need no clock."""
    dated = ["{n} of {month}", "{n}/{yy}", "Q{quarter}-{n}"]

    assert [text for text in ("{n}", "{scope}-{n}", *dated) if rule(text).has_dates] == dated
    assert rule("{n}", "year").has_dates


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


def test_scopes(subtests):
    made = rule()

    class Journal(int, Enum):
        SALES = 8

    good = {"": "", "tenant-7": "tenant-7", 7: "7", Journal.SALES: "8", UUID(int=1): str(UUID(int=1))}
    assert {scope: made.check_scope(scope) for scope in good} == good
    for wrong in (None, True, -1, "a b", "é", "x" * 65, b"a"):
        with (
            subtests.test(wrong=wrong),
            pytest.raises(InvalidTag, match=r"the scope of 'invoice' is empty, or 1 to 64 of "),
        ):
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


# -- which rows wait together, in which order, and the numbers that they get


yearly = NumberRule("invoice", NumberFormat("INV-{year}-{n:03}"), "year")
MARCH, EARLIER = date(2026, 3, 9), date(2025, 12, 31)


def keys(found: dict[Group, list]) -> list[tuple[tuple[str, str], list[object]]]:
    return [(tuple(group), [one.row.key[0] for one in due]) for group, due in found.items()]


def test_rows_of_a_scope_and_period_wait_together_in_the_order_given():
    scopes = [(9, 7), (2, 10), (4, 7), (1, 7), (3, "a"), (5, "A")]
    rows = [WaitingRow((key,), scope, EARLIER if key == 4 else MARCH) for key, scope in scopes]
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
        ((key,), Number(n, f"INV-2026-0{n}", "7", "2026")) for key, n in ((9, 10), (1, 11), (5, 12))
    ]

    daily = NumberRule("invoice", NumberFormat("{scope}/{year}{month}{day}/{n}"), "month")
    moments = [datetime(2026, 3, 8, 23, 30, tzinfo=UTC), date(2026, 3, 31)]
    groups, _ = in_groups(daily, ZoneInfo("Europe/Berlin"), [WaitingRow((at,), "eu", at) for at in moments])
    texts = [number.text for _, number in numbered(daily, groups[Group("eu", "2026-03")], 2)]
    assert texts == ["eu/20260309/1", "eu/20260331/2"], "each row has its own date and scope"


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


# -- the audit of numbers without gaps, over plain rows


ALL = Group()
A, B = Group("a", "2026"), Group("b", "2026")


def test_disorder_is_a_number_below_the_one_before():
    """Told where the rows come in the order of events, and once for each step back."""
    for numbers, expected in (([1, 2, 5, 3, 4], [(3, 5)]), ([2, 2, 1], [(1, 2)]), ([1, 2, 2, 3], [])):
        rows = [(group, n) for n in numbers for group in (A, B)]
        assert list(disorder([Found("unreadable", A), *rows])) == [
            Found("disorder", group, *pair) for pair in expected for group in (A, B)
        ]


GROUPS = st.sampled_from([ALL, A, B, A._replace(period="2027")])
NUMBERS = st.integers(1, 40)


@given(
    st.dictionaries(GROUPS, st.tuples(st.lists(NUMBERS), st.integers(0, 45))),
    st.sets(st.tuples(GROUPS, NUMBERS)),
    st.integers(1, 10),
)
def test_each_scope_and_period_is_judged_by_itself_as_sets_do_it(groups, void, start):
    rows = [(group, n) for group, (numbers, _) in groups.items() for n in sorted(numbers)]
    found = list(audit(rows, {group: counter for group, (_, counter) in groups.items()}, void, start=start))

    assert {one.group for one in found} <= groups.keys(), "a void number of a group that is not there is left out"
    for group, (numbers, counter) in groups.items():
        kinds = {kind: [one for one in found if (one.kind, one.group) == (kind, group)] for kind in get_args(Kind)}
        unused = {n for one, n in void if one == group}
        newest = max([counter, *numbers])
        gaps = [n for one in kinds["gap"] for n in range(one.first, one.last + 1)]
        assert gaps == sorted(set(range(start, newest + 1)) - set(numbers) - unused)
        assert len(kinds["duplicate"]) == len(numbers) - len(set(numbers))
        assert [one.first for one in kinds["void"]] == sorted(unused.intersection(numbers))
        ahead = [Found("ahead", group, max(counter + 1, start), newest)] if newest > counter else []
        assert kinds["ahead"] == ahead, "they will be given again"


# -- rows as a database returns them

READ_YEARLY = NumberRule("invoice", NumberFormat("INV-{year}-{n:05}"), "year")
SCOPED = NumberRule("invoice", NumberFormat("{scope}/{n}"))
BARE = NumberRule("invoice", NumberFormat("{n}"), "year")
FISCAL = NumberRule("invoice", NumberFormat("{yy}Q{quarter}-{n}"), "year", year_starts="04-01")
BARE_FISCAL = NumberRule("invoice", NumberFormat("{n}"), "year", year_starts="04-01")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("rule", "row", "read"),
    [
        (READ_YEARLY, ("INV-2026-00007", "a", None), (A, 7)),
        (READ_YEARLY, ("INV-2026-00007", "a", date(2026, 3, 9)), (A, 7)),
        (SCOPED, ("a/7", None, None), (Group("a"), 7)),
        (SCOPED, ("a/7", "a", None), (Group("a"), 7)),
        (BARE, (7, 12, date(2026, 3, 9)), (Group("12", "2026"), 7)),
        (BARE, (Decimal(7), UUID(int=1), "2026-03-09"), (Group(str(UUID(int=1)), "2026"), 7)),
        (BARE, (7, None, "2026-03-09 10:00:00 +0000 UTC"), (Group("", "2026"), 7)),
        (BARE, (7, None, 20260309), (Group("", "2026"), 7)),
        (BARE, (7, None, datetime(2025, 12, 31, 23, 30, tzinfo=UTC)), (Group("", "2026"), 7)),
        (FISCAL, ("26Q4-7", None, date(2027, 3, 31)), (Group("", "2026"), 7)),
        (BARE_FISCAL, (7, None, "2026-03-31 10:00"), (Group("", "2025"), 7)),
        (BARE_FISCAL, (7, None, datetime(2026, 3, 31, 23, 30, tzinfo=UTC)), (Group("", "2026"), 7)),
    ],
)
def test_a_row_is_read(rule, row, read):
    assert read_row(rule, BERLIN, *row) == read


def test_a_datetime_without_a_time_zone_is_of_that_of_the_rows():
    for at in ("2025-12-31 23:30", datetime.fromisoformat("2025-12-31 23:30")):
        assert read_row(BARE, BERLIN, 7, None, at, UTC) == (Group("", "2026"), 7)
        assert read_row(BARE, BERLIN, 7, None, at) == (Group("", "2025"), 7)
    for at in ("2025-12-31", date(2025, 12, 31)):
        assert read_row(BARE, ZoneInfo("America/New_York"), 7, None, at, UTC) == (Group("", "2025"), 7)


@pytest.mark.parametrize(
    ("rule", "row", "why"),
    [
        (READ_YEARLY, ("INV-2026-7", "a", None), "is no number of the format"),
        (READ_YEARLY, ("INV-2026-00007", "a", date(2027, 1, 1)), "is of the period '2026'"),
        (SCOPED, ("a/7", "b", None), "is of the scope 'a'"),
        (BARE, (0, None, date(2026, 1, 1)), "is no number from 1 to"),
        (BARE, (Decimal("1.5"), None, date(2026, 1, 1)), "is no number from 1 to"),
        (BARE, (7, None, "soon"), "is no date that names a year"),
        (BARE, (7, None, 2026), "is no date that names a year"),
        (BARE_FISCAL, (7, None, date(1, 1, 1)), "is no date that names a year"),
        (FISCAL, ("26Q4-7", None, date(2026, 3, 31)), "is of the period '2026'"),
    ],
)
def test_what_is_no_number_is_told(rule, row, why):
    found = read_row(rule, UTC, *row)

    assert found.kind == "unreadable"
    assert why in found.text
    assert list(audit([found], {})) == [found]
