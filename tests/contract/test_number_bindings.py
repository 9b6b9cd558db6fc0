"""Numbers that are bound to a column: `allocator numbers bind|unbind`, and what the doctor then says of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from sqlalchemy import (
    CHAR,
    BigInteger,
    Column,
    Date,
    DateTime,
    Engine,
    Enum,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Uuid,
    create_engine,
    event,
    insert,
    update,
)
from support.servers.administrator import execute, values

from allocator import Numbers
from allocator.cli import main
from allocator.database.schema.tables import number_binding
from allocator.doctor import DANGER, Finding, examine

OURS = {"counter-below-column", "bound-counter-gone", "bound-column-gone", "counters-not-looked-at", "not-looked-at"}
MARCH, LATER = date(2026, 3, 9), date(2027, 1, 2)
invoices = Numbers("invoice", format="INV-{year}-{n:03}", reset="year")
receipts = Numbers("receipt", reset="year")
cases = Numbers("case")

tables = MetaData()
invoice = Table(
    "invoice",
    tables,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", String(64)),
    Column("number", String(64)),
    Column("plain", String(64)),
    Column("booked", Date),
    Index("by_tenant", "tenant", "number"),
)
receipt = Table(
    "receipt",
    tables,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("tenant", Integer),
    Column("year", Integer),
    Column("booked", DateTime),
    Column("n", Integer),
    Column("dated", Integer),
    Index("by_year", "tenant", "year", "n"),
    Index("by_n", "dated", "tenant"),
)
case = Table("court_case", tables, Column("n", BigInteger, primary_key=True, autoincrement=False))
keys = count(1)

BIND = ("bind", "invoice.number", "--name", "invoice", "--format", "INV-{year}-{n:03}", "--reset", "year")
BIND += ("--scope-column", "tenant")
ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def shop(fresh: str) -> Iterator[Engine]:
    engine = create_engine(fresh)
    tables.create_all(engine)
    yield engine
    engine.dispose()


def url_of(shop: Engine) -> str:
    return shop.url.render_as_string(hide_password=False)


def run(shop: Engine, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON, or its sentence if it is refused."""
    result = CliRunner().invoke(main, ["numbers", *words, "--json", "--url", url_of(shop)])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if result.stdout else result.stderr


def found(shop: Engine) -> list[Finding]:
    return [one for one in examine(url_of(shop)) if one.name in OURS]


def mend(shop: Engine) -> None:
    """Run the commands of all findings."""
    for one in found(shop):
        run(shop, *one.mend.split()[2:])


def draw(shop: Engine, tenant: str, times: int = 1, at: date = MARCH) -> None:
    with shop.begin() as connection:
        for number in invoices.next(connection, tenant, at, count=times):
            row = {"id": next(keys), "tenant": tenant, "number": number.text, "plain": number.text, "booked": at}
            connection.execute(insert(invoice).values(row))


def write(shop: Engine, tenant: str, *numbers: str) -> None:
    """By other means than the counter."""
    with shop.begin() as connection:
        for number in numbers:
            row = {"id": next(keys), "tenant": tenant, "number": number, "plain": number}
            connection.execute(insert(invoice).values(row))


def test_numbers_are_bound_and_nothing_is_found(shop):
    draw(shop, "a", 3)
    write(shop, "a", "INV-2025-004", "RE-4", "inv-2026-004", "draft")
    write(shop, "b", "INV-2026-004")
    bound = run(shop, *BIND)
    draw(shop, "a", 2)

    assert bound["place"].endswith(".invoice.number")
    assert bound["findings"] == []
    assert run(shop, *BIND)["place"] == bound["place"]
    assert [one["bound_to"] for one in run(shop, "list")] == [[bound["place"]]]
    assert found(shop) == []
    assert run(shop, "unbind", "invoice.number") == {"place": bound["place"], "name": "invoice"}
    assert [one["bound_to"] for one in run(shop, "list")] == [[]]
    assert "no numbers are bound to invoice.number" in run(shop, "unbind", "invoice.number", code=1)


def test_a_counter_below_its_column_is_raised_by_the_remedy(shop):
    draw(shop, "a", 3)
    draw(shop, "b", 2)
    draw(shop, "b", 2, LATER)
    place = run(shop, *BIND)["place"]
    write(shop, "a", "INV-2026-004", "INV-2026-013")
    write(shop, "b", "INV-2026-012", "INV-2026-040", "INV-2027-013")
    one, other = found(shop)

    assert [one.mend, other.mend] == [
        "allocator numbers set invoice 13 --scope a --period 2026",
        "allocator numbers set invoice 40 --scope b --period 2026",
    ]
    assert one.severity is DANGER
    assert one.found == (
        f"'invoice' of scope 'a' in 2026 is at 3, and {place} holds numbers up to 13: it will issue numbers that rows "
        "have already"
    )
    mend(shop)
    assert found(shop) == []


@ON_SQLITE
def test_a_number_whose_row_is_committed_while_the_doctor_looks_is_no_finding(shop):
    """The counter is read before the rows: it may have passed them."""
    draw(shop, "a", 3)
    run(shop, *BIND)
    drawn: list[str] = []

    def draw_once(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if ".invoice" in statement.partition(" IN (")[0].replace('"', "").replace("`", "") and not drawn:
            drawn.append(statement)
            draw(shop, "a", 4)

    event.listen(Engine, "before_cursor_execute", draw_once)
    try:
        assert found(shop) == []
    finally:
        event.remove(Engine, "before_cursor_execute", draw_once)

    assert len(drawn) == 1
    assert values(url_of(shop), "SELECT COUNT(*) FROM invoice") == [7]


def test_whole_numbers_are_compared_in_their_year(shop):
    """By a column for the year, and by one for the date: the same number is in each year."""
    with shop.begin() as connection:
        for at in (MARCH, LATER):
            for number in receipts.next(connection, 7, at, count=12 if at == LATER else 3):
                row = {"id": next(keys), "tenant": 7, "year": at.year, "booked": at, "n": number.n, "dated": number.n}
                connection.execute(insert(receipt).values(row))
        receipts.next(connection, "not-a-number", LATER)  # of another table
    by_year = ("bind", "receipt.n", "--name", "receipt", "--scope-column", "tenant", "--period-column", "year")
    by_date = ("bind", "receipt.dated", "--name", "receipt", "--scope-column", "tenant", "--period-column", "booked")
    for words in (by_year, by_date):
        assert run(shop, *words)["findings"] == []
    with shop.begin() as connection:
        row = {"id": next(keys), "tenant": 7, "year": 2026, "booked": MARCH, "n": 5, "dated": 6}
        connection.execute(insert(receipt).values(row))

    assert sorted(one.mend for one in found(shop)) == [
        "allocator numbers set receipt 5 --scope 7 --period 2026",
        "allocator numbers set receipt 6 --scope 7 --period 2026",
    ]


@contextmanager
def noted(pattern: str) -> Iterator[list[tuple[str, Any]]]:
    """The statements that a pattern finds, and their parameters."""
    asked: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if re.search(pattern, statement):
            asked.append((statement, parameters))

    event.listen(Engine, "after_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "after_cursor_execute", note)


DASHED = "8f0e7f5c-9a52-4f8e-9a4e-0a4f3b1f2c11"
SPELLED = {
    "with dashes": (String(36), DASHED, DASHED.replace("-", "")),
    "without dashes": (CHAR(32), DASHED.replace("-", ""), DASHED.upper()),
    "as SQLAlchemy has it": (Uuid(), UUID(DASHED), DASHED),
}


def paper_of(shop: Engine, kind: Any, *rows: tuple[object, int], **options: Any) -> Table:
    """Documents whose scope is in a column of a type."""
    key = Column("n", Integer, primary_key=True, autoincrement=False)
    made = Table("paper", MetaData(), Column("tenant", kind, **options), key, Index("by_scope", "tenant", "n"))
    made.metadata.create_all(shop)
    with shop.begin() as connection:
        for tenant, n in rows:
            connection.execute(insert(made).values(tenant=tenant, n=n))
    return made


def drop_papers(shop: Engine, paper: Table) -> None:
    """And what is bound to them, and the counters."""
    paper.metadata.drop_all(shop)
    execute(url_of(shop), "DELETE FROM allocator_number", "DELETE FROM allocator_number_binding")


BIND_PAPER = ("bind", "paper.n", "--name", "case", "--scope-column", "tenant")


def test_a_uuid_is_the_same_with_dashes_and_without(shop):
    remedies, audited = {}, {}
    for how, (type_of, holds, scope) in SPELLED.items():
        paper = paper_of(shop, type_of, (holds, 2))
        with shop.begin() as connection:
            cases.next(connection, scope)
            cases.next(connection, "no-uuid")
        run(shop, *BIND_PAPER)
        remedies[how] = [one.mend for one in found(shop)]
        told = run(shop, "audit", "paper.n", code=1)["findings"]
        audited[how] = [(one["kind"], one["first"]) for one in told if one["scope"] == scope]
        drop_papers(shop, paper)

    expected = {how: [f"allocator numbers set case 2 --scope {scope}"] for how, (*_, scope) in SPELLED.items()}
    assert remedies == expected
    assert audited == {how: [("gap", "1"), ("ahead", "2")] for how in SPELLED}


def test_the_empty_scope_may_be_an_empty_text(shop):
    for none in ("", None):
        paper = paper_of(shop, String(64), (none, 2), server_default="", nullable=none is None)
        with shop.begin() as connection:
            cases.next(connection)
        run(shop, *BIND_PAPER)
        (one,) = found(shop)
        assert one.mend == "allocator numbers set case 2", repr(none)
        mend(shop)
        assert found(shop) == [], repr(none)
        drop_papers(shop, paper)


SCOPES = {
    "an enum": (
        Enum("red", "Blue", name="colour"),
        [("Blue", 2), ("red", 1)],
        {"red": 1, "Blue": 1, "green": 1, "": 1},
        "allocator numbers set case 2 --scope Blue",
    ),
    "whole numbers": (
        Integer(),
        [(7, 2)],
        dict.fromkeys(("7", "9" * 12, "9" * 30, "none", ""), 1),
        "allocator numbers set case 2 --scope 7",
    ),
    "text": (
        String(64).with_variant(String(64, "utf8mb4_general_ci"), "mysql", "mariadb"),
        [("Acme", 2), ("acme", 12)],
        {"Acme": 11, "acme": 11},
        "allocator numbers set case 12 --scope acme",
    ),
}
"""A type, its rows, the counters by scope, the remedy. On MySQL the collation ignores case: both scopes are found."""


def test_a_scope_that_a_type_cannot_hold_is_no_rows_and_no_error(shop):
    remedies = {}
    for name, (type_of, rows, counters, _) in SCOPES.items():
        paper = paper_of(shop, type_of, *rows)
        with shop.begin() as connection:
            for scope, n in counters.items():
                cases.set(connection, n, scope=scope)
        run(shop, *BIND_PAPER)
        remedies[name] = [one.mend for one in found(shop)]
        drop_papers(shop, paper)

    assert remedies == {name: [remedy] for name, (*_, remedy) in SCOPES.items()}


UNKNOWN = {
    "sqlite": ("BINARY(16)", "NUMERIC(9,2)"),
    "postgres": ("INET", "NUMERIC(9,2)", "BYTEA"),
    "mysql": ("BINARY(16)",),
    "mariadb": ("BINARY(16)", "INET6"),
}


def test_a_scope_that_cannot_be_compared_is_told(kind, shop):
    sentence = "scopes are compared with text, whole numbers and UUIDs alone"
    with shop.begin() as connection:
        cases.next(connection, "a")
    for type_name in UNKNOWN[kind]:
        execute(url_of(shop), f"CREATE TABLE paper (tenant {type_name}, n INTEGER NOT NULL, UNIQUE (tenant, n))")
        assert sentence in run(shop, *BIND_PAPER, code=1), type_name
        with shop.begin() as connection:
            place = run(shop, *BIND)["place"].replace("invoice.number", "paper.n")
            kept = {"place": place, "name": "case", "format": "{n}", "scope_column": "tenant"}
            connection.execute(update(number_binding).values(kept))
        (one,) = found(shop)
        assert one.name == "not-looked-at", type_name
        assert sentence in one.found, type_name
        execute(url_of(shop), "DROP TABLE paper", "DELETE FROM allocator_number_binding")


def test_a_counter_that_is_gone_is_found_and_set_by_the_audit(shop):
    draw(shop, "a", 3)
    place = run(shop, *BIND)["place"]
    execute(url_of(shop), "DELETE FROM allocator_number")
    (one,) = found(shop)
    told = run(shop, "audit", "invoice.number", code=1)

    assert (one.name, one.severity) == ("bound-counter-gone", DANGER)
    assert f"{place} holds 'INV-2026-00" in one.found
    assert one.mend.endswith(f": allocator numbers audit {place}")
    (ahead,) = [one for one in told["findings"] if one["kind"] == "ahead"]
    run(shop, "set", "invoice", ahead["last"], "--scope", ahead["scope"], "--period", ahead["period"])
    assert found(shop) == []


@ON_SQLITE
def test_a_column_that_is_gone_is_unbound_by_the_remedy(shop):
    place = run(shop, *BIND)["place"]
    execute(url_of(shop), "DROP TABLE invoice")
    (one,) = found(shop)
    assert (one.name, one.mend) == ("bound-column-gone", f"allocator numbers unbind {place}")
    assert one.found == f"numbers 'invoice' are bound to {place}, and this user sees no such column"
    mend(shop)

    assert found(shop) == []


# -- the audit of a bound column


@ON_SQLITE
def test_the_audit_of_a_bound_column_needs_no_options(shop):
    draw(shop, "a", 3)
    execute(url_of(shop), "DELETE FROM invoice WHERE number = 'INV-2026-002'")
    assert "give --name, or bind the column" in run(shop, "audit", "invoice.number", code=2)
    place = run(shop, *BIND)["place"]

    for column in ("invoice.number", place):
        told = run(shop, "audit", column, code=1)
        assert [(one["kind"], one["scope"], one["first"]) for one in told["findings"]] == [("gap", "a", "2")]
    execute(url_of(shop), "DROP TABLE allocator_number_binding")
    assert len(run(shop, "audit", *BIND[1:], code=1)["findings"]) == 1
    assert [one["bound_to"] for one in run(shop, "list")] == [[]]
    assert "allocator db upgrade" in run(shop, *BIND, code=1)


# -- what is refused

REFUSED = {
    "no table": (("none.number", *BIND[2:]), "there is no table with a column"),
    "no column": (("invoice.none", *BIND[2:]), "there is no table with a column"),
    "no scope column": ((*BIND[1:-1], "none"), "there is no table with a column"),
    "not a column": (("invoice", *BIND[2:]), "is named table.column"),
    "no index": (
        ("invoice.plain", *BIND[2:]),
        "invoice begins with (tenant, plain), so only a scan of the table could tell",
    ),
    "no scope in the index": (
        ("invoice.number", *BIND[2:-2]),
        "invoice begins with (number), so only a scan of the table could",
    ),
    "a date that no period tells": (
        (*BIND[1:4], "--format", "INV-{year}-{month}-{n}", *BIND[6:]),
        "the numbers of 'invoice' restart each year, and their format 'INV-{year}-{month}-{n}' has {month}",
    ),
    "no reset": ((*BIND[1:6], *BIND[8:]), "the numbers of 'invoice' never restart, and their format"),
    "a text in whole numbers": (("receipt.n", *BIND[2:]), "is no text, and the format is 'INV-{year}-{n:03}'"),
    "no period column": (
        ("receipt.n", "--name", "r", "--reset", "year"),
        "give --period-column, or a --format that has",
    ),
    "a time zone": ((*BIND[1:], "--timezone", "Mars"), "timezone must be a name as 'Europe/Berlin'"),
    "no column for scopes": (("court_case.n", "--name", "case"), "'case' have scopes: give --scope-column"),
}


def test_what_the_doctor_could_not_look_at_is_refused(shop):
    with shop.begin() as connection:
        cases.next(connection, "a")
    said = {why: run(shop, "bind", *words, code=1) for why, (words, _) in REFUSED.items()}

    assert {why: said[why] for why, (_, sentence) in REFUSED.items() if sentence not in said[why]} == {}
    assert values(url_of(shop), "SELECT place FROM allocator_number_binding") == []


@ON_SQLITE
def test_a_column_is_bound_once(shop):
    place = run(shop, *BIND)["place"]
    for words in (("--start", "100"), ("--name", "other")):
        refused = run(shop, *BIND, *words, code=1)
        assert f"{place} is bound to numbers 'invoice' already" in refused
        assert f"first run: allocator numbers unbind {place}" in refused


# -- by index alone


PARTLY = {
    "sqlite": ("CREATE INDEX partly ON invoice (plain, tenant) WHERE plain > 'M'",),
    "postgres": (
        "CREATE INDEX partly ON invoice (plain, tenant) WHERE plain > 'M'",
        "CREATE INDEX partly ON invoice USING brin (plain, tenant)",
    ),
    "mysql": ("CREATE FULLTEXT INDEX partly ON invoice (plain, tenant)",),
}
PARTLY["mariadb"] = PARTLY["mysql"]


def test_an_index_that_does_not_find_every_row_is_none(kind, shop):
    drop = "DROP INDEX partly" + " ON invoice" * (kind in ("mysql", "mariadb"))
    for index in PARTLY[kind]:
        execute(url_of(shop), index)
        assert "invoice begins with (" in run(shop, "bind", "invoice.plain", *BIND[2:], code=1), index
        execute(url_of(shop), drop)
    execute(url_of(shop), PARTLY[kind][0], "CREATE INDEX better ON invoice (plain, tenant)")
    assert run(shop, "bind", "invoice.plain", *BIND[2:])["findings"] == []


@ON_SQLITE
def test_an_index_without_the_scope_is_refused(shop):
    """Each tenant has the same numbers."""
    execute(url_of(shop), "CREATE INDEX plainly ON invoice (plain)")

    assert "invoice begins with (" in run(shop, "bind", "invoice.plain", *BIND[2:], code=1)


HOW = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}


def plan_of(shop: Engine, statement: str, parameters: Any) -> str:
    how = HOW.get(shop.dialect.name, "EXPLAIN FORMAT=TRADITIONAL ")
    with shop.connect() as connection:
        if shop.dialect.name == "postgresql":
            connection.exec_driver_sql("SET enable_seqscan = off")  # as the doctor does
        return "\n".join(" ".join(map(str, row)) for row in connection.exec_driver_sql(how + statement, parameters))


@pytest.mark.statements
def test_no_table_is_scanned(kind, shop):
    draw(shop, "a", 400)
    for n in range(30):
        draw(shop, f"t{n}", 3)
    run(shop, *BIND)
    with noted(r"FROM \S*invoice\S* ?\s*WHERE") as asked:
        assert found(shop) == []

    assert len(asked) == 2, asked
    plans = "\n".join(plan_of(shop, *one) for one in asked)
    assert len(re.findall(r"(SEARCH .* INDEX|Index .*|range) by_tenant", plans)) == 31, plans
    assert not re.search(r"SCAN invoice|Seq Scan| ALL ", plans)
