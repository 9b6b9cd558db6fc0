"""`allocator numbers list|set|assign|audit`, on every database, over tables with planted faults."""

import json
from collections.abc import Iterator
from datetime import date
from itertools import count
from uuid import UUID

import pytest
from sqlalchemy import (
    CHAR,
    BigInteger,
    Column,
    Date,
    Engine,
    MetaData,
    String,
    Table,
    Uuid,
    create_engine,
    delete,
    insert,
    select,
    update,
)
from support import kit
from support.kit import SQLITE
from support.transcripts import wrong_commands

from allocator import Numbers
from allocator.errors import InvalidSetting

invoices = Numbers("invoice", format="INV-{year}-{n:03}", reset="year")
cases = Numbers("case")
MARCH = date(2026, 3, 9)

rows = Table(
    "invoice",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=False, default=lambda: next(keys)),
    Column("tenant", String(64)),
    Column("booked", Date),
    Column("number", String(64)),
    Column("n", BigInteger),
)
keys = count(1)


@pytest.fixture
def shop(fresh: str) -> Iterator[Engine]:
    """An application's engine, on the database with the allocator's tables."""
    engine = create_engine(fresh)
    rows.metadata.create_all(engine)
    yield engine
    engine.dispose()


def run(shop: Engine, *words: str) -> kit.Said:
    return kit.run(shop.url.render_as_string(hide_password=False), "numbers", *words)


def add(shop: Engine, tenant: str, times: int = 1, at: date = MARCH, of: Numbers = invoices) -> list[str]:
    """Rows with numbers: their texts."""
    with shop.begin() as connection:
        drawn = of.next(connection, tenant, at, count=times)
        row = {"tenant": tenant, "booked": date(at.year, at.month, at.day)}
        connection.execute(insert(rows), [row | {"number": one.text, "n": one.n} for one in drawn])
    return [one.text for one in drawn]


def put(shop: Engine, **values: object) -> None:
    with shop.begin() as connection:
        connection.execute(insert(rows).values(values))


def remove(shop: Engine, tenant: str, *numbers: int) -> None:
    with shop.begin() as connection:
        connection.execute(delete(rows).where(rows.c.tenant == tenant, rows.c.n.in_(numbers)))


def found(shop: Engine, *words: str) -> list[tuple[object, ...]]:
    done = run(shop, *words, "--json")
    told = json.loads(done.out)
    assert done.code == (1 if told["findings"] else 0)
    return [(one["kind"], one["scope"], one["period"], one["first"], one["last"]) for one in told["findings"]]


COUNTERS = """
$ numbers list --json
[]
$ numbers set case 41
the next number of 'case' is 42
$ numbers set invoice 7 --scope a --period 2026
the next number of 'invoice' of scope 'a' in 2026 is 8
1$ numbers set invoice 2 --scope a --period 2026
error: ...'invoice' of scope 'a' in 2026 is at 7 already...
2$ numbers set invoice 2 --scope a --period 2026-3
...
Error: Invalid value for '--period': a year, month or day as 2026, 2026-03 or 2026-03-14; got '2026-3'
2$ numbers set invoice 7 --scope b --period 2026-03
...
Error: the numbers of 'invoice' restart each year: give --period, as 2026
2$ numbers set case 42 --period 2026
...
Error: the numbers of 'case' never restart: leave out --period...
$ numbers list
name     scope  period  newest
case                    41
invoice  a      2026    7
$ numbers list case --json
[{"name": "case", "scope": "", "period": "", "newest": "41"}]
$ numbers set invoice 6 --period 2025
the next number of 'invoice' in 2025 is 7
"""


def test_counters_are_listed_and_raised_and_never_lowered(shop):
    """Nor set where nobody draws: without a period, or in one of another kind."""
    assert wrong_commands(shop.url.render_as_string(hide_password=False), COUNTERS) == []
    with shop.connect() as connection:
        assert cases.next(connection).n == 42
        assert invoices.next(connection, "a", MARCH).text == "INV-2026-008"


BY_TEXT = ("audit", "invoice.number", "invoice", "--format", "INV-{year}-{n:03}", "--scope-column", "tenant")
BY_NUMBER = ("audit", "invoice.n", "invoice", "--scope-column", "tenant", "--period-column", "booked")
ASSIGN = ("assign", *BY_TEXT[1:], "--period-column", "booked", "--order-column", "id")


def test_rows_that_wait_are_numbered(shop):
    add(shop, "a")
    for tenant, booked in (("a", MARCH), ("b", MARCH), ("a", date(2025, 1, 1)), ("a", None)):
        put(shop, tenant=tenant, booked=booked)
    assert run(shop, *BY_TEXT).out == "1 row: nothing was found\n"
    assert run(shop, *ASSIGN).out == "3 rows numbered\n"
    assert run(shop, *ASSIGN, "--reset", "year", "--json").json == {"numbered": 0}
    with shop.connect() as connection:
        numbers = list(connection.scalars(select(rows.c.number).order_by(rows.c.id)))
    assert numbers == ["INV-2026-001", "INV-2026-002", "INV-2026-001", "INV-2025-001", None]


@pytest.mark.parametrize(
    ("holds", "tenant", "drawn"),
    [(Uuid(), UUID(int=7), 0), (Uuid(), UUID(int=7), 1), (CHAR(32), UUID(int=7).hex, 1), (CHAR(32), "acme" * 8, 0)],
)
def test_a_uuid_is_the_scope_that_the_application_gives(shop, holds, tenant, drawn):
    """Where the database has no type for it, its column holds 32 digits. The counters say whether they are text."""
    slips = Table("slip", MetaData(), Column("id", BigInteger, primary_key=True), Column("tenant", holds))
    slips.append_column(Column("n", BigInteger))
    with shop.begin() as connection:
        slips.create(connection)
        connection.execute(insert(slips).values(id=1, tenant=tenant))
        for _ in range(drawn):
            Numbers("slip").next(connection, tenant)
    words = ("slip.n", "slip", "--reset", "never", "--scope-column", "tenant", "--order-column", "id")
    assert run(shop, "assign", *words).out == "1 row numbered\n"

    with shop.begin() as connection:
        assert connection.scalar(select(slips.c.n)) == drawn + 1
        assert Numbers("slip").next(connection, tenant).n == drawn + 2
        slips.drop(connection)


def test_a_sound_column_has_no_findings(shop):
    assert run(shop, *BY_TEXT).out == "0 rows: nothing was found\n"
    add(shop, "a", 1100)
    add(shop, "a", 9, date(2027, 1, 1))
    put(shop, tenant="a", booked=MARCH)  # a draft

    for words in (BY_TEXT, BY_NUMBER):
        assert run(shop, *words) == (0, "1109 rows: nothing was found\n", "")


def test_planted_faults_are_found(shop):
    add(shop, "a", 20)
    add(shop, "b", 5)
    add(shop, "b", 4, date(2027, 1, 1))
    remove(shop, "a", 4, 5, 20)
    remove(shop, "b", 5)
    put(shop, tenant="a", booked=MARCH, number="INV-2026-007", n=7)
    put(shop, tenant="b", booked=date(2027, 5, 1), number="INV-2027-006", n=6)
    with shop.begin() as connection:
        for text in ("INV-2026-005", "INV-2026-006"):
            invoices.void(connection, invoices.parse(text, "a"), "the customer left")

    planted = [
        ("gap", "a", "2026", "4", "4"),
        ("duplicate", "a", "2026", "7", "7"),
        ("void", "a", "2026", "6", "6"),
        ("gap", "a", "2026", "20", "20"),
        ("gap", "b", "2026", "5", "5"),
        ("gap", "b", "2027", "5", "5"),
        ("ahead", "b", "2027", "5", "6"),
    ]
    assert sorted(found(shop, *BY_TEXT)) == sorted(planted)
    numbers = found(shop, *BY_NUMBER)
    assert numbers == found(shop, *BY_NUMBER, "--format", "INV-{year}-{n:03}")
    assert sorted(numbers) == sorted(planted)
    lines = run(shop, *BY_TEXT).out.splitlines()
    assert lines[0].split() == ["kind", "scope", "period", "message"]
    assert "gap        a        2026  no row has 4" in lines
    assert "void       a        2026  6 is void, and a row has it" in lines
    assert lines[-1] == "27 rows: 1 ahead, 1 duplicate, 4 gap, 1 void"
    (mend,) = [line.partition("raise it with: allocator numbers ")[2] for line in lines if line.startswith("ahead")]
    assert run(shop, *mend.split()).out == "the next number of 'invoice' of scope 'b' in 2027 is 7\n"


@SQLITE
def test_disorder_is_by_a_column_and_texts_of_another_format_are_told(shop):
    add(shop, "a", 5)
    with shop.begin() as connection:
        connection.execute(update(rows).where(rows.c.n == 2).values(booked=date(2026, 4, 1)))
    assert found(shop, *BY_TEXT) == []
    assert found(shop, *BY_TEXT, "--order-column", "booked") == [("disorder", "a", "2026", "2", "5")]

    put(shop, tenant="a", booked=MARCH, number="RE-1", n=0)
    assert "unreadable  a              'RE-1' is no number of the format" in run(shop, *BY_TEXT).out
    assert [one[0] for one in found(shop, *BY_NUMBER)] == ["unreadable"]


BARE = (*BY_NUMBER, "--format", "{n}")
MIXED_UP = (
    (2, "no counter keeps the reset of 'invoice': give --reset", ASSIGN),
    (2, "--reset is 'month', but the counters of 'invoice' say 'year'", (*ASSIGN, "--reset", "month")),
    (1, "the numbers of 'invoice' have scopes: give --scope-column", (*ASSIGN[:5], *ASSIGN[7:])),
    (1, "there is no table bills", ("assign", "bills.number", *ASSIGN[2:])),
    (1, "'nummer' is no column of the table invoice", ("assign", "invoice.nummer", *ASSIGN[2:])),
    (2, "restart each year: give --period-column", (*BARE[:-4], *BARE[-2:])),
    (1, "1 names no year, and no date is beside it: give --period-column", BY_NUMBER[:-2]),
    (1, "no number of 'invoce' was drawn yet, so it begins; ", (*BY_NUMBER[:2], "invoce", *BY_NUMBER[3:])),
    (1, "nothing", ("audit", "invoice.nothing", *BY_NUMBER[2:])),
)


@SQLITE
def test_what_would_mix_up_scopes_or_periods_is_refused_and_no_row_is_numbered_otherwise_than_by_the_application(
    shop, subtests
):
    for code, sentence, words in MIXED_UP:
        with subtests.test(words=words):
            done = run(shop, *words)
            assert (done.code, sentence in done.out + done.err) == (code, True), (words, done)
            add(shop, "a")


@SQLITE
def test_another_start_and_reset_than_the_counters_say(shop):
    for n in (100, 101, 103):
        put(shop, tenant="a", booked=MARCH, n=n)
    words = (*BY_NUMBER, "--reset", "month", "--start", "100")

    assert found(shop, *words) == [("gap", "a", "2026-03", "102", "102"), ("ahead", "a", "2026-03", "100", "103")]


def test_a_timer_that_is_told_nothing_numbers_as_the_application_does(shop):
    """The counters keep format, reset, fiscal year and time zone, and refuse others, also for a new year."""
    fiscal = {"format": "FY{year}-{n:03}", "reset": "year", "year_starts": "04-01"}
    bills = Numbers("bill", timezone="Europe/Berlin", **fiscal)
    february, april = date(2027, 2, 1), date(2027, 4, 1)
    add(shop, "a", 1, february, bills)
    for day in (february, april):
        put(shop, tenant="a", booked=day)
    words = ("invoice.number", "bill", "--scope-column", "tenant", "--period-column", "booked")
    for option, value in (("--year-starts", "01-01"), ("--reset", "never"), ("--timezone", "UTC")):
        refused = run(shop, "assign", *words, "--order-column", "id", option, value)
        assert f"{option} is '{value}', but the counters of 'bill' say" in refused.err
    refused = run(shop, "assign", *words, "--order-column", "id", "--format", "B{year}-{n:03}")
    assert "the numbers of 'bill' are counted by --reset year --year-starts 04-01" in refused.err
    assert run(shop, "assign", *words, "--order-column", "id").out == "2 rows numbered\n"
    assert run(shop, "audit", *words).out == "3 rows: nothing was found\n"
    other = run(shop, "audit", words[0], "other", *words[2:], "--reset", "year", "--year-starts", "02-29")
    assert (other.code, "as '04-01', got '02-29'" in other.err) == (2, True)
    with shop.connect() as connection:
        numbers = list(connection.scalars(select(rows.c.number).order_by(rows.c.id)))
    assert numbers == ["FY2026-001", "FY2026-002", "FY2027-001"]

    calendar = Numbers("bill", timezone="Europe/Berlin", **fiscal | {"year_starts": "01-01"})
    for day in (february, date(2028, 2, 1)):  # of a year that has a counter, and of one that has none
        with shop.connect() as connection, pytest.raises(InvalidSetting, match="are counted by") as other:
            calendar.next(connection, "a", day)
    mend = str(other.value).partition("run: allocator numbers ")[2]
    assert run(shop, *mend.split()).out == "2 counters of 'bill' keep what draws next\n"
    with shop.begin() as connection:
        assert calendar.next(connection, "a", april).text == "FY2027-002"


@SQLITE
def test_only_the_first_findings_are_printed_and_all_are_counted(shop):
    with shop.begin() as connection:
        invoices.set(connection, 2200, scope="a", at=MARCH)
        even = [{"tenant": "a", "booked": MARCH, "n": n} for n in range(2, 2201, 2)]
        connection.execute(insert(rows), even)
    lines = run(shop, *BY_NUMBER).out.splitlines()

    assert lines[1000].endswith("no row has 1999")
    assert lines[1001:] == ["... and 100 more", "1100 rows: 1100 gap"]
