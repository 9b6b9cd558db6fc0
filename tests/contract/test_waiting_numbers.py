"""Rows that get their numbers after their commit, on every database."""

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
import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.applications.shop import LEVELS, MARCH, emptied, noting, seen_waiting
from support.kit import SERVERS, on
from support.processes.patience import until

from allocator import Numbers, errors
from allocator.database.tables import number
from allocator.errors import InvalidArgument, InvalidDatabase, InvalidSetting, NumberBusy, NumberConflict
from allocator.schemes.gapless_numbers import MAX_NUMBER

EARLIER = date(2025, 12, 31)
IMPATIENT = dict.fromkeys(("mysql", "mariadb"), "SET innodb_lock_wait_timeout = 1")
IMPATIENT |= {"sqlite": "PRAGMA busy_timeout = 100", "postgres": "SET lock_timeout = '1s'"}


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


invoices, cases = Numbers("invoice", format="INV-{year}-{n:03}", reset="year"), Numbers("case")
BY_NAME = {"number": "number", "scope": "tenant", "at": "booked", "order_by": "id"}
bills = invoices.waiting(Bill, number=Bill.number, scope=Bill.tenant, at=Bill.booked, order_by=Bill.id)
files = cases.waiting(Case, number=Case.n, order_by=Case.urgent)
LOCK, WRITE, DRAW = "^SELECT bill(?s:.*)FOR UPDATE", "^UPDATE bill", "^INSERT INTO allocator_number"


def table_of(name: str, key: str, **columns: Any) -> Table:
    columns_of = [sa.Column(column, kind, primary_key=column == key) for column, kind in columns.items()]
    return Table(name, MetaData(), *columns_of)


def texts(*numbers: int | None, year: int = 2026) -> list[str | None]:
    return [n and f"INV-{year}-{n:03}" for n in numbers]


def draw(connection: Connection | Session, *scopes: str, at: Any = MARCH) -> list[int]:
    return [invoices.next(connection, scope, at).n for scope in scopes]


@contextmanager
def engine_at(kind: str, url: str, **options: Any) -> Iterator[Engine]:
    """Whoever waits for a lock gives up soon."""
    engine = create_engine(url, pool_size=10, **options)

    @event.listens_for(engine, "connect")
    def be_impatient(connection: Any, record: Any) -> None:
        connection.cursor().execute(IMPATIENT[kind])
        connection.commit()

    yield engine
    engine.dispose()


@pytest.fixture
def shop(kind: str, url: str) -> Iterator[Engine]:
    """An application's engine, on the database with the allocator's tables."""
    with engine_at(kind, url) as engine:
        yield emptied(engine, Base.metadata)


def add(engine: Engine, *rows: tuple[str | None, date | None], **more: Any) -> None:
    with Session(engine) as session, session.begin():
        session.add_all(Bill(tenant=tenant, booked=booked, **more) for tenant, booked in rows)


def written(engine: Engine) -> dict[str | None, list[str | None]]:
    """The texts by tenant, in the order of the rows."""
    found: dict[str | None, list[str | None]] = {}
    with engine.connect() as connection:
        for tenant, text in connection.execute(select(Bill.tenant, Bill.number).order_by(Bill.id)):
            found.setdefault(tenant, []).append(text)
    return found


def counters(engine: Engine) -> dict[tuple[str, str], int]:
    with engine.connect() as connection:
        return {(row.scope, row.period): row.n for row in connection.execute(select(number))}


@contextmanager
def before(engine: Engine, pattern: str, act: Callable[[Connection], object]) -> Iterator[None]:
    """Do something before each statement that matches, in its transaction."""

    def look(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        if re.search(pattern, statement):
            act(connection)

    event.listen(engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", look)


@contextmanager
def stopped(engine: Engine, pattern: str, call: Callable[[Engine], int]) -> Iterator[tuple[Future[int], Callable]]:
    """A call that stands before its first statement that matches; and what lets it go on."""
    reached, may_go = threading.Event(), threading.Event()

    def stand(connection: Connection) -> None:
        if not may_go.is_set():
            reached.set()
            assert may_go.wait(60)

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.enter_context(before(engine, pattern, stand))
        stack.callback(may_go.set)
        running = pool.submit(call, engine)
        assert until(lambda: reached.is_set() or running.done(), 60)
        assert reached.is_set(), running.exception()
        yield running, may_go.set


# -- one caller


def test_committed_rows_are_numbered_in_their_order_by_their_own_scope_and_date(shop):
    """Of the counter from which transactions draw too; a rollback leaves no gap, and a draft no number."""
    with shop.begin() as connection:
        assert draw(connection, "a") == [1]
    add(shop, ("a", MARCH), ("a", EARLIER), ("b", MARCH), ("a", MARCH), ("a", None), (None, MARCH), ("a", MARCH))
    with Session(shop) as session:
        session.add(Bill(tenant="a", booked=MARCH))
        session.flush()

    assert [bills.assign(shop, "b"), bills.assign(shop), bills.assign(shop)] == [1, 4, 0]
    assert written(shop) == {
        "a": ["INV-2026-002", "INV-2025-001", "INV-2026-003", None, "INV-2026-004"],
        "b": texts(1),
        None: [None],
    }
    assert counters(shop) == {("a", "2025"): 1, ("a", "2026"): 4, ("b", "2026"): 1}
    with shop.begin() as connection:
        assert draw(connection, "a") == [5]


def test_a_backlog_takes_several_transactions(shop):
    """Of at_once rows at most; more than a statement may name, by a key of two columns. New counters take one each."""
    with Session(shop) as session, session.begin():
        session.add_all(Case(court=UUID(int=n % 3), file=f"{n:03}", urgent=-n) for n in range(250))
    coded = Numbers("coded", format="C-{n}")
    each = ((coded, 2 * 3), (cases, 3 + 2))  # a look, and what it found; of bare ones looks after
    for numbers, transactions in each:
        with shop.begin() as connection:
            connection.execute(update(Case).values(n=None))
        with noting(shop, "commit") as committed:
            assert numbers.waiting(Case.__table__, number="n", order_by="urgent", at_once=120).assign(shop) == 250
        with shop.connect() as connection:
            assert list(connection.scalars(select(Case.n).order_by(Case.urgent))) == list(range(1, 251))
        assert len(committed) == transactions


def test_scopes_that_a_column_takes_for_equal_are_counted_apart_and_found_as_it_spells_them(shop):
    """The collation of MySQL and MariaDB does so by default."""
    note = table_of("note", "id", id=BigInteger().with_variant(Integer, "sqlite"), tenant=String(40), n=BigInteger)
    with shop.begin() as connection:
        note.drop(connection, checkfirst=True), note.create(connection)
        tenants = ("a", "A", "a", "7", str(UUID(int=7)), "8")
        connection.execute(insert(note), [{"tenant": tenant} for tenant in tenants])
    notes = cases.waiting(note, number="n", scope="tenant", order_by="id")
    assert notes.assign(shop, "a") + notes.assign(shop, "A") == 3
    assert counters(shop) == {("a", ""): 2, ("A", ""): 1}
    assert [notes.assign(shop, one) for one in (7, UUID(int=7), "8")] == [1, 1, 1]
    with pytest.raises(InvalidArgument, match="'abc' is none that bill.id can hold"):
        cases.waiting(Bill, number="number", scope="id", order_by="id").assign(shop, "abc")


# -- what gets no number


def of_the_first(connection: Connection) -> Any:
    return update(Bill).where(Bill.id == connection.scalar(select(sa.func.min(Bill.id))))


def by_hand(connection: Connection) -> None:
    connection.execute(insert(Bill).values(tenant="a", booked=MARCH, number="INV-2026-001"))


def at_its_end(connection: Connection) -> None:
    invoices.set(connection, MAX_NUMBER, scope="a", at=MARCH)


def misspelt(connection: Connection) -> None:
    connection.execute(of_the_first(connection).values(tenant="two words"))


def drawn_elsewhere(connection: Connection) -> None:
    draw(connection, "a")


def held_elsewhere(connection: Connection) -> None:
    connection.execute(of_the_first(connection).values(number="by hand"))


UNFIT = (
    (by_hand, errors.MaxValueWentBack, "a row has the next number of 'invoice' of scope 'a' in 2026 already"),
    (at_its_end, errors.Exhausted, "of 'invoice'"),
    (
        misspelt,
        errors.InvalidTag,
        r"the row \d+ gets no number: the scope of 'invoice' is empty, or 1 to 64 .*'two wor",
    ),
)
HELD = (
    (drawn_elsewhere, NumberBusy, "has drawn numbers of 'invoice' of scope 'a' in 2026"),
    (held_elsewhere, NumberBusy, "changes a row that waits for a number of 'invoice' of scope '[a-d]' in 2026"),
)


@pytest.mark.parametrize("at_once", [1, 1000])
def test_a_group_that_takes_no_numbers_is_named_and_holds_up_no_other_one(kind, shop, at_once):
    """Its rows wait, and are numbered when they can be."""
    some = invoices.waiting(Bill, at_once=at_once, **BY_NAME)
    for make, error, sentence in (*UNFIT, *(HELD if kind in SERVERS else ())):
        emptied(shop, Bill.metadata)
        add(shop, ("a", MARCH), ("a", EARLIER), *((scope, MARCH) for scope in "bcd" * 2))
        with shop.connect() as other:
            make(other)
            if (make, error, sentence) in UNFIT:
                other.commit()
            with noting(shop, "commit") as committed, pytest.raises(error, match=sentence):
                some.assign(shop)
            other.rollback()
        found = written(shop)

        assert [found[scope] for scope in "bcd"] == [texts(1, 2)] * 3, make
        assert "INV-2025-001" in found["a"], make
        assert at_once == 1 or len(committed) < 10, make
        if make in {drawn_elsewhere, held_elsewhere}:
            assert (some.assign(shop), written(shop)["a"]) == (1, [*texts(1), "INV-2025-001"]), make


@on(*SERVERS)
def test_groups_without_numbers_do_not_count_as_held(shop):
    add(shop, *((scope, MARCH) for scope in "abcde"))
    with shop.begin() as connection:
        for scope in "abc":
            invoices.set(connection, MAX_NUMBER, scope=scope, at=MARCH)
    with shop.connect() as other:
        draw(other, "d")
        with pytest.raises(errors.Exhausted):
            bills.assign(shop)

    assert written(shop)["e"] == texts(1)


@on(*SERVERS)
def test_of_a_group_of_which_somebody_holds_a_row_none_is_numbered(shop):
    add(shop, *((scope, MARCH) for scope in "abc" * 2))
    with shop.begin() as connection:
        for scope in "abc":
            draw(connection, scope)
    with shop.connect() as other:
        other.execute(of_the_first(other).values(tenant="b"))
        with pytest.raises(NumberBusy, match="changes a row .* of 'invoice' of scope 'a' in 2026"):
            bills.assign(shop)

    assert written(shop) == {"a": [None, None], "b": texts(2, 3), "c": texts(2, 3)}


def fail(*_: object) -> None:
    raise ZeroDivisionError


def end(*_: object) -> None:
    raise errors.DatabaseUnavailable("it has ended")


def take_one_away(connection: Connection) -> None:
    connection.exec_driver_sql("/* by hand */ UPDATE bill SET number = 'X' || id WHERE id = (SELECT min(id) FROM bill)")


@on("sqlite")
def test_counter_and_rows_change_together_or_neither(shop):
    add(shop, ("a", MARCH), ("a", MARCH))
    for act, error, sentence in (
        (fail, ZeroDivisionError, None),
        (end, errors.DatabaseUnavailable, "it has ended"),
        (take_one_away, NumberConflict, "2 rows waited .* only 1"),
    ):
        with before(shop, WRITE, act), pytest.raises(error, match=sentence):
            bills.assign(shop)

        assert (written(shop), counters(shop)) == ({"a": [None, None]}, {}), act
    add(shop, ("b", MARCH))
    once = iter([take_one_away])
    with before(shop, WRITE, lambda connection: [act(connection) for act in once]):
        assert bills.assign(shop) == 3  # groups that fail together are tried alone
    assert written(shop) == {"a": texts(1, 2), "b": texts(1)}


@pytest.mark.parametrize("mode", ["TRADITIONAL", ""])
def test_a_number_that_the_column_does_not_hold_is_refused(kind, url, shop, mode):
    """Whatever the model says. Without its strict mode, MySQL writes the greatest number that a column holds."""
    long = Numbers("long", format="{n:019}-{scope}-0123456789-0123456789").waiting(Bill, **BY_NAME | {"at": None})
    add(shop, ("a", MARCH))
    with pytest.raises(InvalidSetting, match="bill.number has room for 40 characters, and '0000000000000000001-"):
        long.assign(shop)
    if kind == "sqlite":
        return
    options = {} if kind == "postgres" else {"connect_args": {"init_command": f"SET SESSION sql_mode = '{mode}'"}}
    for model, rows, last in (
        (Integer, [(1, "a"), (2, "a"), (3, "a")], {"a": 32766}),
        (sa.Numeric, [(1, "b"), (2, "c")], {"b": 10000, "c": 40000}),  # of many groups the greatest number is looked at
    ):
        small = table_of("small", "id", id=BigInteger, scope=String(9), n=model)
        with shop.begin() as connection, engine_at(kind, url, **options) as engine:
            connection.exec_driver_sql("DROP TABLE IF EXISTS small")
            connection.exec_driver_sql("CREATE TABLE small (id BIGINT PRIMARY KEY, scope VARCHAR(9), n SMALLINT)")
            for scope, n in last.items():
                cases.set(connection, n, scope=scope)
            connection.execute(insert(small), [{"id": id_, "scope": scope} for id_, scope in rows])
            connection.commit()
            with pytest.raises(InvalidSetting, match="small.n has no room for (32769|40001); nothing was written"):
                cases.waiting(small, number="n", scope="scope", order_by="id").assign(engine)
        assert counters(shop).get(("c", ""), 40000) == 40000


@on("sqlite")
def test_what_no_row_can_wait_for_is_refused_at_once(shop):
    keyless = table_of("keyless", "", number=String(9), id=BigInteger)
    strict = table_of("strict", "id", number=String(9), id=BigInteger)
    strict.c.number.nullable = False
    every = {"number": "number", "order_by": "id"}
    for numbers, table, columns, refusal in (
        (cases, keyless, every, "the table keyless has no primary key"),
        (cases, strict, every, "rows wait with NULL as their number, but strict.number is NOT NULL"),
        (cases, Bill, every | {"number": "nummer"}, "'nummer' is no column of the table bill"),
        (cases, Bill, every | {"scope": Case.court}, "is no column of the table bill"),
        (cases, "bill", every, "a mapped class, a Table or a model of Django, got 'bill'"),
        (invoices, Bill, every, r"needs the columns that its format and reset name: scope=, at="),
    ):
        with pytest.raises(InvalidSetting, match=refusal):
            numbers.waiting(table, **columns)
    with pytest.raises(errors.InvalidCount, match="at_once must be 1 to 10000, got 0"):
        cases.waiting(Bill, at_once=0, **every)
    with pytest.raises(InvalidArgument, match="the rows of case_file are all of one scope, got 'a'"):
        files.assign(shop, "a")
    with pytest.raises(errors.InvalidDatabase, match="give the Engine of the rows"):
        bills.assign(Session(binds={Bill: shop}))


@on("sqlite")
def test_a_key_that_finds_no_row_is_no_silence(shop):
    """SQLite keeps a date as the text that it was given, and SQLAlchemy asks for another one."""
    log = table_of("log", "at", at=sa.DateTime, n=BigInteger)
    log.create(shop)
    with shop.begin() as connection:
        connection.exec_driver_sql("INSERT INTO log (at) VALUES ('2026-03-09 10:00:00')")
    with pytest.raises(NumberConflict, match=r"a row of log waits, but its key .*2026, 3, 9, 10.* does not find it"):
        Numbers("log", format="L-{n}").waiting(log, number="n", order_by="at").assign(shop)


@on("sqlite", "postgres", "mysql")
def test_a_moment_that_the_database_returns_without_its_time_zone_is_refused(shop):
    """Local time of the numbers may be of another year."""
    log = table_of("moment", "id", id=Integer, at=sa.DateTime(timezone=True), text=String(20))
    numbers = Numbers("moment", format="{year}/{n}", reset="year", timezone="Europe/Berlin")
    waiting = numbers.waiting(log, number="text", at="at", order_by="id")
    with shop.begin() as connection:
        log.drop(connection, checkfirst=True), log.create(connection)
        connection.execute(insert(log).values(at=datetime(2026, 12, 31, 23, 30, tzinfo=UTC)))
    if shop.dialect.name == "postgresql":
        assert waiting.assign(shop) == 1
    else:
        with pytest.raises(InvalidSetting, match=r"moment\.at is declared with timezone=True, but .*sql.* returned"):
            waiting.assign(shop)

    with shop.connect() as connection:
        assert connection.scalar(select(log.c.text)) == ("2027/1" if shop.dialect.name == "postgresql" else None)


# -- what the application connects by


@on("sqlite", "postgres")
def test_by_whatever_the_application_connects(kind, shop):
    factory = sessionmaker(shop)
    scoped = scoped_session(factory)
    awaited = shop.url.set(drivername="sqlite+aiosqlite") if kind == "sqlite" else shop.url

    async def story() -> int:
        engine = create_async_engine(awaited)
        async with AsyncSession(engine) as session:
            done = await session.run_sync(bills.assign)
        with pytest.raises(InvalidDatabase, match=r"give a SQLAlchemy Engine.*run_sync\(feed.assign\)"):
            bills.assign(session)
        await engine.dispose()
        return done

    with shop.connect() as connection, factory() as session:
        for source in (shop, factory, scoped, session, connection):
            add(shop, ("a", MARCH))
            assert bills.assign(source) == 1
        scoped.remove()
        for open_one in (connection, session):
            open_one.execute(select(number))
            with pytest.raises(InvalidDatabase, match="after the commit, and a transaction is still open, as by a r"):
                bills.assign(open_one)
    add(shop, ("a", MARCH))
    assert asyncio.run(story()) == 1
    with pytest.raises(InvalidDatabase, match="is one of asyncio; with asyncio use await session.run_sync"):
        bills.assign(create_async_engine("sqlite+aiosqlite://").sync_engine)
    with pytest.raises(InvalidDatabase, match="this connection commits each statement by itself"):
        bills.assign(shop.execution_options(isolation_level="AUTOCOMMIT"))
    assert written(shop) == {"a": texts(1, 2, 3, 4, 5, 6)}


@on("postgres", "mysql")
def test_inside_of_a_transaction_that_a_test_rolls_back(shop):
    with shop.connect() as connection, connection.begin() as outer:
        factory = sessionmaker(connection, join_transaction_mode="create_savepoint")
        for _ in range(2):
            with factory.begin() as session:
                session.add(Bill(tenant="a", booked=MARCH))
            assert bills.assign(factory) == 1
        outer.rollback()

    assert (written(shop), counters(shop)) == ({}, {})


# -- several callers


def test_who_comes_second_finds_nothing_and_leaves_no_gap(shop):
    """Its first number is drawn to lock the counter, and rolled back."""
    add(shop, ("a", MARCH))
    first = iter([bills.assign])
    done: list[int] = []
    with before(shop, DRAW, lambda _: done.extend(assign(shop) for assign in first)):
        assert bills.assign(shop) == 0
    assert (done, written(shop), counters(shop)) == ([1], {"a": texts(1)}, {("a", "2026"): 1})


@on(*SERVERS)
@pytest.mark.parametrize("level", LEVELS)
def test_of_two_at_once_the_second_finds_nothing_but_what_came_meanwhile(kind, url, shop, level):
    """On each isolation level of the application: what was read before the counter was free would be numbered twice.

    A row that is not committed yet holds up nobody, and while rows are numbered, others of the scope are inserted: on
    MySQL a locking read would stop either, since it takes rows of open transactions and the gaps between rows.
    """
    add(shop, ("a", MARCH), ("a", MARCH))
    with (
        engine_at(kind, url, isolation_level=level) as theirs,
        shop.connect() as watcher,
        Session(shop) as writer,
        ThreadPoolExecutor(1) as pool,
    ):
        writer.add(Bill(tenant="a", booked=MARCH))
        writer.flush()
        with stopped(shop, WRITE, bills.assign) as (first, go_on):
            second = pool.submit(bills.assign, theirs)
            assert seen_waiting(kind, watcher, second)
            assert not second.done(), second.exception()
            add(shop, ("a", MARCH), ("A", EARLIER), ("b", MARCH))
            go_on()
            assert (first.result(60), second.result(60)) == (2, 1)
        writer.commit()

    assert bills.assign(shop) == 3
    assert sorted(written(shop)["a"]) == texts(1, 2, 3, 4)


def move(session: Session, first: Bill, second: Bill) -> None:
    first.booked = EARLIER


def end_both(session: Session, first: Bill, second: Bill) -> None:
    session.delete(first)
    second.number = "by hand"


@on(*SERVERS)
def test_a_row_that_changes_between_look_and_lock_is_counted_as_it_is_then(shop):
    for act, now, later, found in (
        (move, 2, 1, ["INV-2025-001", *texts(1, 2)]),
        (end_both, 1, 0, ["by hand", *texts(1)]),
    ):
        emptied(shop, Bill.metadata)
        add(shop, *[("a", MARCH)] * 3)
        with stopped(shop, LOCK, bills.assign) as (call, go_on):
            with Session(shop) as session, session.begin():
                act(session, *session.scalars(select(Bill).order_by(Bill.id).limit(2)))
            go_on()
            assert (call.result(60), bills.assign(shop), written(shop)["a"]) == (now, later, found), act


@on(*SERVERS)
def test_who_holds_many_counters_waits_for_none(kind, url, shop):
    """Else an application that draws of two scopes, in an order of its own, would end in a deadlock."""
    with shop.begin() as connection:
        draw(connection, *"abc")
    add(shop, ("a", MARCH), ("b", MARCH), ("c", MARCH))
    with ExitStack() as stack:
        theirs, watcher = (stack.enter_context(shop.connect()) for _ in range(2))
        pool, patient = stack.enter_context(ThreadPoolExecutor(1)), sa.create_engine(url)
        stack.callback(patient.dispose)
        draw(theirs, "c")
        call = pool.submit(bills.assign, patient)
        assert seen_waiting(kind, watcher, call)
        draw(theirs, "a")
        theirs.commit()
        assert call.result(60) == 3

    assert written(shop) == {"a": texts(2), "b": texts(2), "c": texts(3)}


@on("mysql", "mariadb")
def test_rows_are_locked_by_their_key_whatever_the_planner_prefers(shop):
    """It would scan the table where most rows wait, and lock those of open transactions too."""
    add(shop, *[("a", MARCH)] * 100)
    with shop.connect() as connection:
        connection.exec_driver_sql("ANALYZE TABLE bill").all()
    with Session(shop) as writer:
        writer.add(Bill(tenant="a", booked=MARCH))
        writer.flush()
        assert bills.assign(shop) == 100
