"""Rows that get their numbers after their commit, on every database."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    BigInteger,
    Connection,
    Date,
    DateTime,
    Engine,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    UniqueConstraint,
    Uuid,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy import Column as Col
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.distinct import distinct
from support.processes.patience import until
from support.servers.locks import SEEN_EACH, waits

from allocator import Numbers
from allocator.database.schema.tables import number, number_void
from allocator.database.verbs import waiting_number_rows
from allocator.database.verbs.gapless_number_rows import fetch_last
from allocator.database.verbs.waiting_number_rows import STATEMENT, WaitingNumbers
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidArgument,
    InvalidCount,
    InvalidDatabase,
    InvalidSetting,
    InvalidTag,
    MaxValueWentBack,
    NumberBusy,
    NumberConflict,
)
from allocator.runtime.turns import Turns
from allocator.schemes.gapless_numbers import MAX_NUMBER

invoices = Numbers("invoice", format="INV-{year}-{n:03}", reset="year")
cases = Numbers("case")
MARCH, EARLIER = date(2026, 3, 9), date(2025, 12, 31)
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
SERVERS = ["postgres", "mysql", "mariadb"]
servers = pytest.mark.parametrize("kind", SERVERS, indirect=True)
"""SQLite has one writer at a time: there nobody writes beside another."""
ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
TIMEOUTS = {
    "sqlite": "PRAGMA busy_timeout = 100",
    "postgres": "SET lock_timeout = '1s'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
    "mariadb": "SET innodb_lock_wait_timeout = 1",
}


class Base(DeclarativeBase):
    pass


class Bill(Base):
    __tablename__ = "bill"
    __table_args__ = (UniqueConstraint("number", "tenant"),)
    """By which the rows without a number are found, those of open transactions too."""
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str | None] = mapped_column(String(64))
    booked: Mapped[date | None]
    number: Mapped[str | None] = mapped_column(String(40))


class Case(Base):
    """Of one scope, with integers, and a key of two columns."""

    __tablename__ = "case_file"
    court: Mapped[UUID] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(String(8), primary_key=True)
    urgent: Mapped[int]
    n: Mapped[int | None] = mapped_column(BigInteger)


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(String(64))
    n: Mapped[int | None]


bills = invoices.waiting(Bill, number=Bill.number, scope=Bill.tenant, at=Bill.booked, order_by=Bill.id)
files = cases.waiting(Case, number=Case.n, order_by=Case.urgent)


@pytest.fixture
def shop(kind: str, url: str) -> Iterator[Engine]:
    """An application's engine, on the database with the allocator's tables; those of this file are empty."""
    with engine_at(kind, url) as engine:
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            for table in (number, number_void, *Base.metadata.sorted_tables):
                connection.execute(delete(table))
        yield engine


@contextmanager
def engine_at(kind: str, url: str, **options: Any) -> Iterator[Engine]:
    """Whoever waits for a lock gives up soon."""
    engine = create_engine(url, pool_size=10, **options)

    @event.listens_for(engine, "connect")
    def be_impatient(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(TIMEOUTS[kind])
        connection.commit()

    yield engine
    engine.dispose()


def add(engine: Engine, *rows: tuple[str | None, date | None]) -> None:
    with Session(engine) as session, session.begin():
        session.add_all(Bill(tenant=tenant, booked=booked) for tenant, booked in rows)


def written(engine: Engine, tenant: str = "a") -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Bill.number).where(Bill.tenant == tenant).order_by(Bill.id)))


def counters(engine: Engine) -> dict[tuple[str, str], int]:
    with engine.connect() as connection:
        return {(row.scope, row.period): row.n for row in connection.execute(select(number))}


@contextmanager
def counted(engine: Engine) -> Iterator[list[object]]:
    """The commits meanwhile."""
    found: list[object] = []

    @event.listens_for(engine, "commit")
    def count(connection: Connection) -> None:
        found.append(connection)

    yield found
    event.remove(engine, "commit", count)


# -- one caller


@pytest.mark.statements
def test_committed_rows_are_numbered_in_their_order_by_their_own_scope_and_date(shop):
    rows = [("a", MARCH), ("a", EARLIER), ("b", MARCH), ("a", MARCH), ("a", None), (None, MARCH), ("a", MARCH)]
    add(shop, *rows)
    with Session(shop) as session:
        session.add(Bill(tenant="a", booked=MARCH))
        session.flush()
        session.rollback()  # leaves no gap

    assert bills.assign(shop, "b") == 1
    assert written(shop) == [None] * 5
    assert bills.assign(shop) == 4
    assert bills.assign(shop) == 0

    assert written(shop) == ["INV-2026-001", "INV-2025-001", "INV-2026-002", None, "INV-2026-003"]
    assert written(shop, "b") == ["INV-2026-001"]
    assert counters(shop) == {("a", "2025"): 1, ("a", "2026"): 3, ("b", "2026"): 1}


@pytest.mark.statements
def test_both_ways_share_a_counter(shop):
    with shop.begin() as connection:
        assert invoices.next(connection, "a", MARCH).n == 1
    add(shop, ("a", MARCH))
    assert bills.assign(shop) == 1
    with shop.begin() as connection:
        assert invoices.next(connection, "a", MARCH).n == 3

    assert written(shop) == ["INV-2026-002"]


@pytest.mark.statements
def test_a_backlog_is_numbered_by_several_transactions(shop):
    """Of at_once rows at most; more than one statement may name, by a key of two columns."""
    rows = [Case(court=UUID(int=n % 3), file=f"{n:03}", urgent=-n) for n in range(250)]
    with Session(shop) as session, session.begin():
        session.add_all(rows)
    some = cases.waiting(Case.__table__, number="n", order_by="urgent", at_once=120)
    counts: list[int] = []

    @event.listens_for(shop, "commit")
    def keep(connection: Connection) -> None:
        counts.append(sum(connection.scalars(select(number.c.n))))

    assert some.assign(shop) == 250
    event.remove(shop, "commit", keep)
    with shop.connect() as connection:
        numbers = list(connection.scalars(select(Case.n).order_by(Case.urgent)))
    assert numbers == list(range(1, 251))
    assert [count for count in dict.fromkeys(counts) if count] == [120, 240, 250]


@pytest.mark.statements
def test_many_scopes_are_numbered_together(shop):
    """By one transaction beside that which looks for them; but on servers, new counters take one each."""
    scopes = [f"s{n}" for n in range(120)]
    for times in (1, 2):
        add(shop, *((scope, MARCH) for scope in scopes * times))
        with counted(shop) as committed:
            bills.assign(shop)

    assert len(committed) == 1 + len(scopes) // STATEMENT + 1
    assert counters(shop) == {(scope, "2026"): 3 for scope in scopes}
    assert all(written(shop, scope) == [f"INV-2026-00{n}" for n in (1, 2, 3)] for scope in scopes)


@servers
def test_a_row_that_somebody_holds_keeps_its_place_and_holds_up_no_other_group(shop):
    add(shop, *[("a", MARCH), ("b", MARCH), ("c", MARCH)] * 2)
    with shop.begin() as connection:
        for scope in "abc":
            invoices.next(connection, scope, MARCH)
    with Session(shop) as session:
        session.scalars(select(Bill).where(Bill.tenant == "b").order_by(Bill.id)).first().tenant = "a"
        session.flush()
        with pytest.raises(NumberBusy, match="changes a row that waits for a number of 'invoice' of scope 'b' in 2026"):
            bills.assign(shop)

    assert written(shop, "b") == [None, None]
    assert written(shop, "a") == written(shop, "c") == ["INV-2026-002", "INV-2026-003"]


@servers
def test_who_holds_many_counters_waits_for_none(kind, url, shop):
    """Else an application that draws of two scopes, in an order of its own, would end in a deadlock."""
    with shop.begin() as connection:
        for scope in "abc":
            invoices.next(connection, scope, MARCH)
    add(shop, ("a", MARCH), ("b", MARCH), ("c", MARCH))
    patient = create_engine(url)
    with shop.connect() as theirs, shop.connect() as watcher, ThreadPoolExecutor(1) as pool, theirs.begin():
        invoices.next(theirs, "c", MARCH)
        call = pool.submit(bills.assign, patient)
        assert until(lambda: waits(kind, watcher) or call.done(), 60, every=SEEN_EACH)
        invoices.next(theirs, "a", MARCH)
        theirs.commit()
        assert call.result(60) == 3
    patient.dispose()

    assert [written(shop, scope) for scope in "abc"] == [["INV-2026-002"], ["INV-2026-002"], ["INV-2026-003"]]


@pytest.mark.statements
def test_scopes_that_a_column_takes_for_equal_are_counted_apart(shop):
    """The collation of MySQL and MariaDB does so by default."""
    with Session(shop) as session, session.begin():
        session.add_all(Note(tenant=tenant) for tenant in ("a", "A", "a"))
    notes = cases.waiting(Note, number=Note.n, scope=Note.tenant, order_by=Note.id)

    assert notes.assign(shop, "a") + notes.assign(shop, "A") == 3
    assert counters(shop) == {("a", ""): 2, ("A", ""): 1}


@ON_SQLITE
def test_a_row_that_no_number_fits_is_named_after_all_others_have_theirs(shop):
    add(shop, ("two words", MARCH), ("z", MARCH))
    with pytest.raises(
        InvalidTag, match=r"the row 1 gets no number: the scope of 'invoice' is empty, or 1 to 64 .*'two words'"
    ):
        bills.assign(shop)
    assert written(shop, "z") == ["INV-2026-001"]

    add(shop, ("a", MARCH), ("z", MARCH))  # found, though each transaction reads no more rows than are wrong
    one = invoices.waiting(Bill, number="number", scope="tenant", at="booked", order_by="id", at_once=1)
    with pytest.raises(InvalidTag, match="the row 1 gets no number"):
        one.assign(shop)
    assert (written(shop), written(shop, "z")) == (["INV-2026-001"], ["INV-2026-001", "INV-2026-002"])


@ON_SQLITE
def test_rows_that_are_wrong_and_gone_between_two_reads_leave_no_row_without_a_number(shop):
    add(shop, *[("two words", MARCH)] * 2, *[("a", MARCH)] * 3)
    some = invoices.waiting(Bill, number="number", scope="tenant", at="booked", order_by="id", at_once=2)
    wrong = iter([delete(Bill).where(Bill.tenant == "two words")])

    @event.listens_for(shop, "commit")
    def correct(connection: Connection) -> None:
        for statement in wrong:
            with shop.begin() as other:
                other.execute(statement)

    assert some.assign(shop) == 3
    event.remove(shop, "commit", correct)


@ON_SQLITE
def test_a_group_that_takes_no_numbers_costs_the_others_few_transactions(shop):
    scopes = [f"s{n}" for n in range(64)]
    add(shop, *((scope, MARCH) for scope in scopes))
    with shop.begin() as connection:
        invoices.set(connection, MAX_NUMBER, scope="s7", at=MARCH)
    with counted(shop) as committed, pytest.raises(Exhausted):
        bills.assign(shop)

    assert len(committed) < 10
    assert [scope for scope in scopes if None in written(shop, scope)] == ["s7"]


@ON_SQLITE
def test_a_database_that_ends_at_the_commit_of_many_groups_is_told(shop):
    """Whether they were numbered is not known."""
    add(shop, ("a", MARCH), ("b", MARCH))
    ends = iter([DatabaseUnavailable("it has ended")])

    def end(connection: Connection) -> None:
        for error in ends:
            raise error

    with paused(shop, WRITE, end), pytest.raises(DatabaseUnavailable, match="it has ended"):
        bills.assign(shop)


@ON_SQLITE
def test_a_group_that_takes_no_numbers_holds_up_no_other_one(shop):
    """Its rows wait: here for a number that a row was given by hand."""
    add(shop, ("a", MARCH), ("a", MARCH), ("b", MARCH), ("a", EARLIER))
    with shop.begin() as connection:
        connection.execute(insert(Bill).values(tenant="a", booked=MARCH, number="INV-2026-001"))
    one = invoices.waiting(Bill, number="number", scope="tenant", at="booked", order_by="id", at_once=1)
    with pytest.raises(MaxValueWentBack, match="a row has the next number of .* in 2026 already"):
        one.assign(shop)

    assert written(shop) == [None, None, "INV-2025-001", "INV-2026-001"]
    assert written(shop, "b") == ["INV-2026-001"]


@servers
def test_a_scope_that_another_transaction_holds_holds_up_no_other_one(shop):
    add(shop, ("a", MARCH), ("b", MARCH))
    with shop.connect() as other, other.begin():
        invoices.next(other, "a", MARCH)
        with pytest.raises(NumberBusy, match="of scope 'a' in 2026"):
            bills.assign(shop)
    assert (written(shop), written(shop, "b")) == ([None], ["INV-2026-001"])


@ON_SQLITE
def test_not_all_scopes_are_waited_for(shop):
    """Who holds one scope of SQLite holds them all."""
    add(shop, *((f"a{n}", MARCH) for n in range(50)))
    tries: list[str] = []
    event.listen(shop, "before_cursor_execute", lambda *given: tries.append(given[2]))
    with shop.connect() as other, other.begin():
        invoices.next(other, "a", MARCH)
        tries.clear()
        with pytest.raises(NumberBusy):
            bills.assign(shop)
    assert len([one for one in tries if one.startswith("INSERT INTO allocator_number")]) == 4


@ON_SQLITE
def test_a_row_that_its_key_does_not_find_is_no_silence(shop):
    """SQLite keeps a date as the text that it was given, and SQLAlchemy asks for another one."""
    log = Table("log", MetaData(), Col("at", DateTime, primary_key=True), Col("n", BigInteger))
    with shop.begin() as connection:
        log.create(connection)
        connection.exec_driver_sql("INSERT INTO log (at) VALUES ('2026-03-09 10:00:00')")
    with pytest.raises(NumberConflict, match=r"a row of log waits, but its key .*2026, 3, 9, 10.* does not find it"):
        cases.waiting(log, number="n", order_by="at").assign(shop)


@pytest.mark.statements
def test_a_scope_is_looked_for_as_its_column_has_it(shop):
    add(shop, ("7", MARCH), ("00000000-0000-0000-0000-000000000007", MARCH), ("8", MARCH))
    assert [bills.assign(shop, 7), bills.assign(shop, UUID(int=7)), bills.assign(shop, "8")] == [1, 1, 1]

    add(shop, ("a", MARCH))
    own = cases.waiting(Bill, number="number", scope="id", order_by="id")
    for scope, sentence in [
        ("abc", "'abc' is none that bill.id can hold"),
        (Bill(), "the scope of 'case' is empty, or"),
    ]:
        with pytest.raises(InvalidArgument, match=sentence):
            own.assign(shop, scope)
    with shop.connect() as connection:
        newest = connection.scalar(select(func.max(Bill.id)))
    assert own.assign(shop, str(newest)) == 1  # as of a path
    court, file = Col("court", Uuid(as_uuid=False), primary_key=True), Col("file", String(8), primary_key=True)
    as_text = Table("case_file", MetaData(), court, file, Col("urgent", Integer), Col("n", BigInteger))
    with Session(shop) as session, session.begin():
        session.add_all(Case(court=UUID(int=n), file="1", urgent=n) for n in (1, 2))
    by_court = cases.waiting(as_text, number="n", scope="court", order_by="urgent")
    assert [by_court.assign(shop, str(UUID(int=1))), by_court.assign(shop)] == [1, 1]


@ON_SQLITE
def test_a_number_that_the_column_would_cut_off_is_refused(shop):
    long = Numbers("long", format="{n:019}-{scope}-0123456789-0123456789")
    add(shop, ("a", MARCH))
    with pytest.raises(InvalidSetting, match="bill.number has room for 40 characters, and '0000000000000000001-a-"):
        long.waiting(Bill, number=Bill.number, scope=Bill.tenant, order_by=Bill.id).assign(shop)

    assert (written(shop), counters(shop)) == ([None], {})


@servers
def test_a_number_above_what_the_column_holds_is_refused(kind, url, shop):
    """Whatever the model says. Without its strict mode, MySQL writes the greatest number that a column holds."""
    small = Table("small", MetaData(), Col("id", BigInteger, primary_key=True), Col("n", Integer))
    waiting, settings = cases.waiting(small, number="n", order_by="id"), {"init_command": "SET SESSION sql_mode = ''"}
    engines = [shop, *([] if kind == "postgres" else [create_engine(url, connect_args=settings)])]
    with shop.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS small")
        connection.exec_driver_sql("CREATE TABLE small (id BIGINT PRIMARY KEY, n SMALLINT)")
        cases.set(connection, 32766)
        connection.execute(insert(small), [{"id": 1}, {"id": 2}, {"id": 3}])
    for engine in engines:
        with pytest.raises(InvalidSetting, match="small.n has no room for 32769; nothing was written, widen the col"):
            waiting.assign(engine)
        engine.dispose()

    with shop.connect() as connection:
        assert list(connection.scalars(select(small.c.n))) == [None, None, None]
    assert counters(shop) == {("", ""): 32766}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_of_many_groups_the_greatest_number_is_looked_at(url, shop):
    """Though the model calls it a decimal, and all of them have as many digits."""
    small = Table(
        "small", MetaData(), Col("id", BigInteger, primary_key=True), Col("scope", String(9)), Col("n", Numeric)
    )
    waiting = cases.waiting(small, number="n", scope="scope", order_by="id")
    with shop.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS small")
        connection.exec_driver_sql("CREATE TABLE small (id BIGINT PRIMARY KEY, scope VARCHAR(9), n SMALLINT)")
        for scope, last in (("a", 10000), ("b", 40000)):
            cases.set(connection, last, scope=scope)
        connection.execute(insert(small), [{"id": 1, "scope": "a"}, {"id": 2, "scope": "b"}])
    engine = create_engine(url, connect_args={"init_command": "SET SESSION sql_mode = ''"})
    with pytest.raises(InvalidSetting, match="small.n has no room for 40001"):
        waiting.assign(engine)
    engine.dispose()

    assert counters(shop) == {("a", ""): 10001, ("b", ""): 40000}


@pytest.mark.statements
def test_counter_and_rows_change_together_or_neither(shop):
    """Whatever ends it: no number left, a number that a row has already, an error at the last statement."""
    add(shop, ("a", MARCH), ("a", MARCH))
    with shop.begin() as connection:
        invoices.set(connection, MAX_NUMBER - 1, scope="a", at=MARCH)
    with pytest.raises(Exhausted):
        bills.assign(shop)
    with shop.begin() as connection:
        connection.execute(update(number).values(n=5))
        connection.execute(insert(Bill).values(tenant="a", booked=MARCH, number="INV-2026-007"))
    with pytest.raises(MaxValueWentBack, match="a row has the next number of 'invoice' of scope 'a' in 2026 already"):
        bills.assign(shop)
    with paused(shop, "^UPDATE bill", fail), pytest.raises(ZeroDivisionError):
        bills.assign(shop)

    assert written(shop) == [None, None, "INV-2026-007"]
    assert counters(shop) == {("a", "2026"): 5}


def fail(connection: Connection) -> None:
    raise ZeroDivisionError


@contextmanager
def paused(engine: Engine, pattern: str, act: Callable[[Connection], object]) -> Iterator[None]:
    """Do something before each statement that matches, in its transaction."""

    def before(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        if re.search(pattern, statement):
            act(connection)

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", before)


@ON_SQLITE
def test_a_row_that_does_not_take_its_number_rolls_all_back(shop):
    """The UPDATE takes rows without a number alone, and is counted."""
    add(shop, ("a", MARCH), ("a", MARCH))
    tried: list[str] = []

    def take_one_away(connection: Connection) -> None:
        tried.append("")
        connection.exec_driver_sql(f"/* by hand */ UPDATE bill SET number = 'X{len(tried)}' WHERE id = 1")

    with paused(shop, "^UPDATE bill", take_one_away), pytest.raises(NumberConflict, match="2 rows waited .* only 1"):
        bills.assign(shop)

    assert len(tried) == 3
    assert (written(shop), counters(shop)) == ([None, None], {})


@ON_SQLITE
def test_what_no_row_can_wait_for_is_refused_at_once(shop):
    keyless = Table("keyless", MetaData(), Col("number", String(9)), Col("id", BigInteger), Col("day", Date))
    strict = Table(
        "strict", MetaData(), Col("number", String(9), nullable=False), Col("id", BigInteger, primary_key=True)
    )
    every = {"number": "number", "order_by": "id"}
    for numbers, table, columns, refusal in (
        (cases, keyless, every, "the table keyless has no primary key"),
        (cases, strict, every, "rows wait with NULL as their number, but strict.number is NOT NULL"),
        (cases, Bill, every | {"number": "nummer"}, "'nummer' is no column of the table bill"),
        (cases, Bill, every | {"scope": Case.court}, "is no column of the table bill"),
        (cases, Bill, every | {"scope": 7}, "7 is no column of the table bill"),
        (cases, Bill, every | {"order_by": Note.id}, "Note.id is no column of the table bill; give one, or its name"),
        (cases, Bill, every | {"order_by": Bill.id.desc()}, "bill.id DESC is no column of the table bill"),
        (cases, "bill", every, "a mapped class, a Table or a model of Django, got 'bill'"),
        (
            invoices,
            Bill,
            every,
            r"Numbers\('invoice', .* needs the columns that its format and reset name: scope=, at=",
        ),
        (Numbers("x", format="{scope}-{n}"), Bill, every, "needs the columns that its format"),
    ):
        with pytest.raises(InvalidSetting, match=refusal):
            numbers.waiting(table, **columns)
    with pytest.raises(InvalidCount, match="at_once must be 1 to 10000, got 0"):
        cases.waiting(Bill, at_once=0, **every)
    with pytest.raises(InvalidArgument, match="the rows of case_file are all of one scope, got 'a'"):
        files.assign(shop, "a")


# -- what the application connects by


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_by_whatever_the_application_connects(shop):
    factory = sessionmaker(shop)
    scoped = scoped_session(factory)
    with shop.connect() as connection, factory() as session:
        for source in (shop, factory, scoped, session, connection):
            add(shop, ("a", MARCH))
            assert bills.assign(source) == 1
        scoped.remove()

    assert written(shop) == [f"INV-2026-00{n}" for n in range(1, 6)]


@ON_SQLITE
def test_a_transaction_that_is_open_or_no_transaction_is_refused(shop):
    async_engine = create_async_engine(shop.url.set(drivername="sqlite+aiosqlite"))
    with shop.connect() as connection, Session(shop) as session:
        for open_one in (connection, session):
            open_one.execute(select(number))
            with pytest.raises(
                InvalidDatabase,
                match="after the commit, and a transaction is still open, as by a read after the commit; commit it",
            ):
                bills.assign(open_one)
    for wrong in (None, str(shop.url), async_engine, AsyncSession(async_engine)):
        with pytest.raises(
            InvalidDatabase, match=r"give a SQLAlchemy Engine.*await session.run_sync\(waiting.assign\)"
        ):
            bills.assign(wrong)
    with pytest.raises(InvalidDatabase, match="^with asyncio: await session.run_sync"):
        bills.assign(async_engine.sync_engine)
    with pytest.raises(InvalidDatabase, match="this connection commits each statement by itself"):
        add(shop, ("a", MARCH))
        bills.assign(shop.execution_options(isolation_level="AUTOCOMMIT"))


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
def test_inside_of_a_transaction_that_a_test_rolls_back(shop):
    with shop.connect() as connection, connection.begin() as outer:
        factory = sessionmaker(connection, join_transaction_mode="create_savepoint")
        for _ in range(2):
            with factory.begin() as session:
                session.add(Bill(tenant="a", booked=MARCH))
            assert bills.assign(factory) == 1
        outer.rollback()

    assert (written(shop), counters(shop)) == ([], {})


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_with_asyncio_by_run_sync(kind, shop):
    async def story() -> list[int]:
        driver = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+psycopg"}[kind]
        engine = create_async_engine(shop.url.set(drivername=driver))
        async with AsyncSession(engine) as session:
            async with session.begin():
                session.add_all([Bill(tenant="a", booked=MARCH), Bill(tenant="b", booked=MARCH)])
            done = [await session.run_sync(bills.assign, "b")]
        async with engine.connect() as connection:
            done.append(await connection.run_sync(bills.assign))
        await engine.dispose()
        return done

    assert asyncio.run(story()) == [1, 1]
    assert written(shop) == written(shop, "b") == ["INV-2026-001"]


@pytest.mark.statements
def test_errors_of_the_database_are_ours(kind, shop):
    class Missing(DeclarativeBase):
        metadata = MetaData()

    class Lost(Missing):
        __tablename__ = "lost"
        id: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[str | None]

    with pytest.raises(DatabaseRefused, match="lacks what is not the allocator's"):
        cases.waiting(Lost, number=Lost.number, order_by=Lost.id).assign(shop)
    if kind != "sqlite":
        away = create_engine(shop.url.set(port=1))
        with pytest.raises(DatabaseUnavailable):
            bills.assign(away)


@ON_SQLITE
def test_a_moment_is_counted_by_the_time_zone(shop):
    """What a driver returns without a time zone is refused, unless one was given."""
    table = Table(
        "moment", MetaData(), Col("id", BigInteger, primary_key=True), Col("at", DateTime), Col("text", String)
    )
    table.create(shop)
    columns = {"number": table.c.text, "at": table.c.at, "order_by": table.c.id}
    with shop.begin() as connection:
        connection.execute(insert(table).values(id=1, at=datetime(2026, 12, 31, 23, 30, tzinfo=UTC)))
    with pytest.raises(InvalidArgument, match="the row 1 gets no number: .* has no time zone"):
        invoices.waiting(table, **columns).assign(shop)
    berlin = Numbers("invoice", format="{year}/{n}", reset="year", timezone="UTC")

    assert berlin.waiting(table, **columns).assign(shop) == 1
    assert counters(shop) == {("", "2026"): 1}


# -- several callers


class Gate:
    """Stops a caller before a statement, in its transaction, until it may go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, connection: Connection) -> None:
        if not self.open.is_set():
            self.reached.set()
            assert self.open.wait(60)


@contextmanager
def stopped(engine: Engine, pattern: str, waiting: Any = bills) -> Iterator[tuple[Future[int], Gate]]:
    """A call of `assign` that stands before its first statement that matches."""
    with ExitStack() as stack:
        pool, gate = stack.enter_context(ThreadPoolExecutor(1)), Gate()
        stack.enter_context(paused(engine, pattern, gate))
        stack.callback(gate.open.set)
        call = pool.submit(waiting.assign, engine)
        assert until(lambda: gate.reached.is_set() or call.done(), 60)
        assert gate.reached.is_set(), call.exception()
        yield call, gate


@pytest.mark.statements
def test_who_comes_second_finds_nothing_and_leaves_no_gap(shop):
    """Its first number is drawn to lock the counter, and rolled back."""
    add(shop, ("a", MARCH))
    before: list[int] = []

    def overtake(connection: Connection) -> None:
        if not before:
            before.append(0)
            before.append(bills.assign(shop))

    with paused(shop, "^INSERT INTO allocator_number", overtake):
        assert bills.assign(shop) == 0
    assert before == [0, 1]
    assert (written(shop), counters(shop)) == (["INV-2026-001"], {("a", "2026"): 1})


LOCK, WRITE = "^SELECT bill(?s:.*)FOR UPDATE", "^UPDATE bill"


@servers
@pytest.mark.parametrize("level", LEVELS)
def test_of_two_at_once_the_second_finds_nothing_but_what_came_meanwhile(kind, url, shop, level):
    """On each isolation level of the application: what was read before the counter was free would be numbered twice."""
    add(shop, ("a", MARCH), ("a", MARCH))
    with (
        engine_at(kind, url, isolation_level=level) as theirs,
        shop.connect() as watcher,
        stopped(shop, WRITE) as (first, gate),
        ThreadPoolExecutor(1) as pool,
    ):
        second = pool.submit(bills.assign, theirs)
        assert until(lambda: waits(kind, watcher) or second.done(), 60, every=SEEN_EACH)
        assert not second.done(), second.exception()
        add(shop, ("a", MARCH))
        gate.open.set()
        assert (first.result(60), second.result(60)) == (2, 1)

    distinct(written(shop))
    assert written(shop) == [f"INV-2026-00{n}" for n in (1, 2, 3)]
    assert counters(shop) == {("a", "2026"): 3}


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_control_who_reads_the_counter_without_its_lock_gives_a_number_twice(kind, shop, monkeypatch):
    def read_first(files: WaitingNumbers, caller: Any, first: Any, most: int) -> int:
        row = {"name": "case", "scope": "", "period": ""}
        last = fetch_last(caller, row) or 0
        seen = waiting_number_rows.fetch(caller, files.columns.waiting(None, most))
        rows = files._of_group(first.group, seen)
        numbers = waiting_number_rows.numbered(files.rule, rows, last + len(rows))
        written = caller.update(files.columns.update(numbers, ""))
        caller.numbers.raise_to(caller, row, last + len(rows))
        return written

    def add_file(urgent: int) -> None:
        with Session(shop) as session, session.begin():
            session.add(Case(court=UUID(int=1), file=str(urgent), urgent=urgent))

    monkeypatch.setattr(WaitingNumbers, "_run", read_first)
    add_file(2)
    with stopped(shop, "^INSERT INTO allocator_number", files) as (first, gate), shop.connect() as watcher:
        add_file(1)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(files.assign, shop.execution_options())  # as of another process
            assert until(lambda: waits(kind, watcher) or second.done(), 60, every=SEEN_EACH)
            gate.open.set()
            assert (first.result(60), second.result(60)) == (1, 1)

    with shop.connect() as connection:
        assert list(connection.scalars(select(Case.n))) == [1, 1]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_threads_that_wait_share_the_next_run(shop, monkeypatch):
    """With that of the first, four calls are two runs."""
    add(shop, ("a", MARCH))
    called, runs = [], []
    monkeypatch.setattr("allocator.runtime.turns.PATIENCE", 60.0)
    monkeypatch.setattr(Turns, "call", recorded(Turns.call, called))
    monkeypatch.setattr(WaitingNumbers, "_assign", recorded(WaitingNumbers._assign, runs))
    with stopped(shop, WRITE) as (first, gate), ThreadPoolExecutor(3) as pool:
        add(shop, ("a", MARCH), ("b", MARCH))
        before = len(called)
        others = [pool.submit(bills.assign, shop) for _ in range(3)]
        assert until(lambda: len(called) == before + 3, 60)
        gate.open.set()
        assert (first.result(60), sorted(call.result(60) for call in others)) == (1, [0, 0, 2])

    assert len(runs) == 2
    assert None not in written(shop)


def recorded(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def record(*words: Any) -> Any:
        result = function(*words)
        calls.append(result)
        return result

    return record


@servers
@pytest.mark.parametrize("level", LEVELS)
def test_no_transaction_of_the_application_waits_nor_is_waited_for(kind, url, shop, level):
    """A row that is not committed yet holds up nobody; and while rows are numbered, others of the scope are inserted.

    On MySQL a locking read would do either: it takes rows of open transactions, and the gaps between rows.
    """
    add(shop, *[("a", MARCH)] * 3)
    with Session(shop) as writer, engine_at(kind, url, isolation_level=level) as ours:
        writer.add(Bill(tenant="a", booked=MARCH))
        writer.flush()
        with stopped(ours, WRITE) as (call, gate):
            add(shop, ("a", MARCH), ("A", EARLIER), ("b", MARCH))
            gate.open.set()
            assert call.result(60) == 3
        writer.commit()

    assert bills.assign(shop) == 4
    assert None not in written(shop)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_rows_are_locked_by_their_key_whatever_the_planner_prefers(shop):
    """It would scan the table where most rows wait, and lock those of open transactions too."""
    add(shop, *[("a", MARCH)] * 100)
    with shop.connect() as connection:
        connection.exec_driver_sql("ANALYZE TABLE bill").all()
    with Session(shop) as writer:
        writer.add(Bill(tenant="a", booked=MARCH))
        writer.flush()
        assert bills.assign(shop) == 100


@servers
def test_a_row_that_changes_its_period_while_it_waits_is_counted_in_the_new_one(shop):
    add(shop, ("a", MARCH), ("a", MARCH))
    with stopped(shop, LOCK) as (call, gate):
        with Session(shop) as session, session.begin():
            session.scalars(select(Bill).order_by(Bill.id)).first().booked = EARLIER
        gate.open.set()
        assert call.result(60) == 1

    assert bills.assign(shop) == 1
    assert written(shop) == ["INV-2025-001", "INV-2026-001"]


@servers
def test_a_row_that_is_gone_or_numbered_by_hand_meanwhile_leaves_no_gap(shop):
    add(shop, *[("a", MARCH)] * 3)
    with stopped(shop, LOCK) as (call, gate):
        with Session(shop) as session, session.begin():
            first, second, _ = session.scalars(select(Bill).order_by(Bill.id))
            session.delete(first)
            second.number = "by hand"
        gate.open.set()
        assert call.result(60) == 1

    assert written(shop) == ["by hand", "INV-2026-001"]
    assert counters(shop) == {("a", "2026"): 1}


@pytest.mark.statements
def test_who_waits_too_long_is_told_for_what(kind, shop):
    add(shop, ("a", MARCH))
    with shop.connect() as connection:
        invoices.next(connection, "a", MARCH)
        with pytest.raises(
            NumberBusy, match=r"has drawn numbers of 'invoice' of scope 'a' in 2026|one writer at a time"
        ):
            bills.assign(shop)
    if kind != "sqlite":
        with Session(shop) as session:
            session.scalars(select(Bill)).one().number = "by hand"
            session.flush()
            with pytest.raises(NumberBusy, match="changes a row that waits for a number of 'invoice' of scope 'a'"):
                bills.assign(shop)

    assert bills.assign(shop) == 1
    assert written(shop) == ["INV-2026-001"]


@servers
def test_many_writers_and_callers_at_once(shop):
    """Some are rolled back; each finds its number after its own call."""
    ready = threading.Barrier(6)

    def write(worker: int) -> None:
        ready.wait(60)
        for times in range(8):
            with Session(shop, expire_on_commit=False) as session:
                bill = Bill(tenant="ab"[times % 2], booked=(MARCH, EARLIER)[worker % 2])
                session.add(bill)
                session.flush()
                if (worker + times) % 4 == 0:
                    session.rollback()
                    continue
                session.commit()
                bills.assign(shop, bill.tenant)
                session.refresh(bill)
                assert bill.number

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(write, worker) for worker in range(6)]:
            done.result(120)

    for tenant in "ab":
        texts = sorted(str(text) for text in written(shop, tenant))
        assert texts == [
            f"INV-{period}-{n:03}"
            for (scope, period), last in sorted(counters(shop).items())
            for n in range(1, last + 1)
            if scope == tenant
        ]
    assert sum(counters(shop).values()) == 36
