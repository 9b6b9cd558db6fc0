"""Numbers without gaps, in the transactions of an application, on every database."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import OperationalError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.applications.shop import LEVELS, MARCH, emptied, seen_waiting
from support.kit import ON_MYSQL, ON_SERVERS, ON_TWO, SQLITE, on
from support.servers.administrator import execute, opened
from support.servers.available import own
from support.servers.databases import with_schema

from allocator import Number, Numbers, errors
from allocator.database.tables import number, number_void
from allocator.database.verbs.gapless_number_rows import MySQLNumbers
from allocator.doctor import DANGER, examine
from allocator.errors import (
    DatabaseRefused,
    InvalidArgument,
    InvalidDatabase,
    InvalidSetting,
    NumberBusy,
    NumberConflict,
)
from allocator.schemes.gapless_numbers import MAX_NUMBER

invoices = Numbers("invoice", format="INV-{year}-{n:05}", reset="year")
plain = Numbers("case")


class Base(DeclarativeBase):
    pass


class Row(Base):
    """What the numbers are for: a table that would not take one twice."""

    __tablename__ = "invoice"
    scope: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    n: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)


@pytest.fixture
def shop(url: str) -> Iterator[Engine]:
    with shop_at(url) as engine:
        yield engine


@contextmanager
def shop_at(url: str) -> Iterator[Engine]:
    """An application's engine, on the database with the allocator's tables; those of this file are empty."""
    with opened(url, pool_size=20) as engine:
        yield emptied(engine, Base.metadata)


def add(connection: Connection, scope: str = "a", numbers: Numbers = plain) -> int:
    """As an application does: a number, and the row that it is for."""
    drawn = numbers.next(connection, scope)
    connection.execute(insert(Row).values(scope=scope, n=drawn.n))
    return drawn.n


def written(engine: Engine, scope: str = "a") -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Row.n).where(Row.scope == scope).order_by(Row.n)))


# -- one caller


def test_numbers_count_up_for_each_scope_and_period(shop):
    with Session(shop) as session, session.begin():
        first = invoices.next(session, scope="tenant-7", at=MARCH)
        assert first == Number(1, "INV-2026-00001", "tenant-7", "2026")
        assert str(invoices.next(session, "tenant-7", at=MARCH)) == "INV-2026-00002"
        assert invoices.next(session, "tenant-8", at=MARCH).n == 1
        assert invoices.next(session, "tenant-7", at=date(2027, 1, 1)).text == "INV-2027-00001"
        assert plain.next(session, "tenant-7").text == "1"
        assert Numbers("case", start=100).next(session).n == 100
    with shop.begin() as connection:
        assert invoices.next(connection, "tenant-7", at=datetime(2026, 12, 31, 23, 59, tzinfo=UTC)).n == 3
        several = invoices.next(connection, "tenant-7", at=MARCH, count=3)
        assert [one.text for one in several] == ["INV-2026-00004", "INV-2026-00005", "INV-2026-00006"]
        assert [one.n for one in invoices.next(connection, "tenant-7", at=MARCH, count=1)] == [7]
        assert invoices.next(connection, "tenant-7", at=MARCH).n == 8
        scopes = ("a", "A", "a.", "", 7, "7")
        assert [Numbers("byte").next(connection, scope).n for scope in scopes] == [1, 1, 1, 1, 1, 2]


@SQLITE
def test_now_is_by_the_clock_in_the_time_zone_that_the_counter_keeps(shop):
    """A fixed offset too: a command reads it back from the counter."""
    new_year = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).timestamp()
    with shop.begin() as connection:
        for zone, period in (("UTC", "2026"), ("Europe/Berlin", "2027")):
            made = Numbers(period, format="{year}/{n}", reset="year", timezone=zone, clock=lambda: new_year)
            assert made.next(connection).period == period
    zones = timezone(timedelta(hours=1)), "UTC+01:00", timezone(timedelta(hours=-9))
    offset = [Numbers("offset", format="{n} of {year}", timezone=zone, clock=lambda: new_year) for zone in zones]
    with shop.begin() as connection:
        assert [one.next(connection).text for one in offset[:2]] == ["1 of 2027", "2 of 2027"]
    counted = r"counted by .*UTC\+01:00 .* and here by .*UTC-09:00"
    with shop.connect() as connection, pytest.raises(InvalidSetting, match=counted):
        offset[2].next(connection)
    with pytest.raises(InvalidSetting, match="timezone must be a name as 'Europe/Berlin'"):
        Numbers("invoice", timezone="Mars/Olympus")


@SQLITE
def test_number_and_row_are_written_together_or_neither(shop):
    """On SQLite the driver begins a transaction at the first INSERT: that of the number must be in it."""
    with shop.connect() as connection:
        plain.next(connection, "a")
        with shop.connect() as other:
            assert other.scalar(select(number.c.n)) is None
        connection.rollback()
        assert connection.scalar(select(number.c.n)) is None


def test_a_rollback_of_a_transaction_or_a_savepoint_takes_the_number_back(shop):
    for times in range(2):
        with shop.connect() as connection:
            for ending in (connection.rollback, connection.commit):
                assert add(connection) == 1 + times
                ending()
    with Session(shop) as session, session.begin():
        with session.begin_nested() as inner:
            assert [plain.next(session, scope).n for scope in "ab"] == [3, 1]
            inner.rollback()
        assert plain.next(session, "a").n == 3
        assert plain.peek(session, "b") is None
        with session.begin_nested():
            assert plain.next(session, "a").n == 4

    with Session(shop) as session:
        assert plain.peek(session, "a").n == 4
    assert written(shop) == [1, 2]


# -- what is refused


@SQLITE
def test_a_session_of_several_databases_names_the_one_of_the_row(shop, tmp_path):
    """Its connection without a class may be that of another database than the row's. Flask-SQLAlchemy keeps engines."""
    flask, alone = Session(shop), Session(shop)
    with shop_at(with_schema(f"sqlite:///{tmp_path}/other.db")) as other:
        flask._db, alone._db = (SimpleNamespace(engines=dict(enumerate(one))) for one in ([shop, other], [shop]))
        for session in (Session(shop, binds={Row: other}), scoped_session(sessionmaker(binds={Row: other})), flask):
            with pytest.raises(InvalidDatabase, match="this session has several databases"):
                plain.next(session)
            assert plain.next(session.connection(bind_arguments={"mapper": Row})).n == 1
            session.close()
        for session in (Session(shop, binds={Row: shop}), alone, scoped_session(sessionmaker(shop))):
            assert plain.next(session).n == 1
            session.close()


@on("mariadb")
def test_a_server_without_checks_overwrites_no_rule(shop):
    with shop.begin() as connection:
        plain.next(connection)
    with shop.connect() as connection:
        connection.exec_driver_sql("SET check_constraint_checks = 0")
        with pytest.raises(errors.SchemaDamaged, match="keeps another rule, and .* enforces no CHECK"):
            Numbers("case", format="N{n}").next(connection)
        with suppress(sa.exc.SQLAlchemyError):
            connection.commit()
    with shop.begin() as connection:
        assert plain.next(connection).n == 2


def commit_each(connection: Any, record: Any) -> None:
    """Behind SQLAlchemy's back, as by a listener."""
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    elif isinstance(connection, pymysql.Connection):
        connection.autocommit(True)
    else:
        connection.autocommit = True


def test_outside_of_a_transaction_it_is_refused_whoever_commits_each_statement(shop):
    """And one that a listener's BEGIN puts into a transaction is taken."""
    level = {"isolation_level": "AUTOCOMMIT"}
    refused = partial(
        pytest.raises, InvalidDatabase, match="inside a transaction; this connection commits each statement"
    )
    with at_level(shop, level["isolation_level"]) as connection, refused():
        plain.next(connection)
    for options in (level, {"execution_options": level}):
        with opened(shop.url, **options) as engine, Session(engine) as session, refused():
            plain.next(session)
    with opened(shop.url) as engine:
        sa.event.listen(engine, "connect", commit_each)
        with engine.connect() as connection, refused():
            plain.next(connection)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        for ending in ("ROLLBACK", "COMMIT"):
            with engine.connect() as connection:
                assert add(connection) == 1
                connection.exec_driver_sql(ending)

    assert written(shop) == [1]


@SQLITE
def test_what_is_no_transaction_of_sqlalchemy(shop):
    for wrong in (shop, None, "sqlite://", object()):
        with pytest.raises(InvalidDatabase, match="give the Session or Connection of SQLAlchemy"):
            plain.next(wrong)
    closed, away = shop.connect(), sa.create_engine("postgresql+psycopg://postgres@127.0.0.1:1/shop")
    closed.close()
    for wrong, why in ((Session(), "bound"), (closed, "closed")):
        with pytest.raises(InvalidDatabase, match=f"no number can be drawn here: .*{why}"):
            plain.next(wrong)
    with Session(away) as session, pytest.raises(errors.DatabaseUnavailable, match="Connection refused"):
        plain.next(session)


@SQLITE
def test_arguments_are_checked_before_anything_is_asked(shop):
    """What a scope or a date may be is judged by the tests of the rule."""
    with shop.connect() as connection:
        for words, error, sentence in (
            ({"scope": "a b"}, errors.InvalidTag, "the scope of 'invoice' is"),
            ({"count": 0}, errors.InvalidCount, "count must be"),
            ({"count": "1"}, errors.InvalidCount, "count must be"),
            ({"at": datetime(2026, 1, 1)}, InvalidArgument, "has no time zone"),  # noqa: DTZ001
        ):
            with pytest.raises(error, match=sentence):
                invoices.next(connection, **words)


def test_without_the_table_the_command_is_named(empty):
    named = pytest.raises(errors.SchemaOutOfDate, match="run: allocator db upgrade")
    with opened(empty) as engine, engine.connect() as connection, named:
        plain.next(connection)


READ_ONLY = {"sqlite": "PRAGMA query_only = 1", "postgres": "SET TRANSACTION READ ONLY"}


def test_a_replica_is_one_clear_error(kind, shop):
    with shop.connect() as connection:
        connection.exec_driver_sql(READ_ONLY.get(kind, "START TRANSACTION READ ONLY"))
        with pytest.raises(
            DatabaseRefused, match=r"is a replica, or the transaction is read-only: .*; use the primary"
        ):
            plain.next(connection)


def test_the_last_number(shop):
    with shop.begin() as connection:
        plain.set(connection, MAX_NUMBER - 2)
        assert plain.next(connection).n == MAX_NUMBER - 1
    for count in (2, 10_000):
        with shop.connect() as connection, pytest.raises(errors.Exhausted, match="fewer numbers of 'case' are left"):
            plain.next(connection, count=count)
    with shop.begin() as connection:
        assert plain.next(connection).n == MAX_NUMBER
    for numbers, count in ((plain, 1), (Numbers("new", start=MAX_NUMBER), 2)):
        with shop.connect() as connection, pytest.raises(errors.Exhausted):
            numbers.next(connection, count=count)


# -- peek, set, void


def test_peek_and_set(shop):
    with shop.begin() as connection:
        assert invoices.peek(connection, at=MARCH) is None
        for _ in range(2):
            assert invoices.set(connection, 41, at=MARCH).text == "INV-2026-00041"
        assert invoices.peek(connection, at=MARCH).text == "INV-2026-00041"
        with pytest.raises(InvalidArgument, match="'invoice' in 2026 is at 41 already; lowered to 40, it .* void\\("):
            invoices.set(connection, 40, at=MARCH)
        assert invoices.next(connection, at=MARCH).n == 42
        assert invoices.set(connection, 50, at=MARCH).n == 50
        with pytest.raises(InvalidSetting, match="n must be"):
            invoices.set(connection, MAX_NUMBER + 1)
    with shop.begin() as connection:
        assert invoices.peek(connection, at=MARCH).n == 50
        assert invoices.peek(connection, at=date(2025, 1, 1)) is None


def test_a_void_number_keeps_its_reason(shop):
    with shop.begin() as connection:
        drawn = invoices.next(connection, "tenant-7", at=MARCH)
        assert invoices.void(connection, drawn, "printed twice")
        assert not invoices.void(connection, invoices.parse(drawn.text, "tenant-7"), "another reason")
        with pytest.raises(errors.InvalidId, match="INV-2026-00002 was not issued: the newest number .* in 2026 is 1"):
            invoices.void(connection, invoices.parse("INV-2026-00002", "tenant-7"), "too early")
        with pytest.raises(errors.InvalidId, match="none yet"):
            invoices.void(connection, invoices.parse("INV-2026-00001", "tenant-8"), "of nobody")
        for foreign in (replace(drawn, text="CN-2026-00001"), replace(drawn, text="INV-2026-00002")):
            with pytest.raises(errors.InvalidId, match=f"{foreign.text}.* is no number of "):
                invoices.void(connection, foreign, "of another counter")
        for wrong, reason, words in ((drawn, " ", "a reason is 1 to 255 char"), ("INV", "x", "must be a Number")):
            with pytest.raises(InvalidArgument, match=words):
                invoices.void(connection, wrong, reason)
    with shop.connect() as connection:
        (kept,) = connection.execute(select(number_void)).all()
        assert kept[:6] == ("invoice", "tenant-7", "2026", 1, "INV-2026-00001", "printed twice")
        assert abs((kept.voided_at.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()) < 86_400


# -- several callers


def at_level(engine: Engine, level: str) -> Connection:
    return engine.connect().execution_options(isolation_level=level)


def run_again(engine: Engine, level: str, act: Callable[[Connection], int]) -> int:
    """As an application should: the whole transaction again, where it is told to."""
    while True:  # SERIALIZABLE may say so as late as at COMMIT
        with suppress(NumberConflict, OperationalError), at_level(engine, level) as connection:
            done = act(connection)
            connection.commit()
            return done


@ON_SERVERS
@pytest.mark.parametrize("level", LEVELS)
def test_two_transactions_at_once_get_one_number_after_the_other(kind, shop, level):
    """The second waits; then it goes on, or is refused as a whole. On each isolation level, also for a new scope."""
    for ending, start in ((ending, start) for ending in ("commit", "rollback") for start in (1, 2)):
        scope = f"{ending}-{start}"
        for _ in range(1, start):
            with shop.begin() as connection:
                add(connection, scope)
        with ThreadPoolExecutor(8) as pool, at_level(shop, level) as first, shop.connect() as watcher:
            assert add(first, scope) == start
            second: Future[int] = pool.submit(run_again, shop, level, partial(add, scope=scope))
            assert seen_waiting(kind, watcher, second)
            assert not second.done(), scope
            getattr(first, ending)()
            drawn = second.result(60)

        assert drawn == (start + 1 if ending == "commit" else start), scope
        assert written(shop, scope) == list(range(1, drawn + 1))


@ON_SERVERS
def test_scopes_do_not_wait_for_each_other_and_a_deadlock_names_its_remedy(kind, shop):
    with shop.begin() as connection:
        for scope in ("a", "b"):
            add(connection, scope)
    with ThreadPoolExecutor(8) as pool, shop.connect() as first, shop.connect() as second, shop.connect() as watcher:
        add(first, "a")
        add(second, "b")
        crossing = pool.submit(add, first, "b")
        assert seen_waiting(kind, watcher)
        calls = [crossing, pool.submit(add, second, "a")]
        if calls[1].exception(60):
            second.rollback()
        (refused,) = filter(None, (call.exception(60) for call in calls))

    assert type(refused) is NumberConflict
    remedy = "run the whole transaction again; to avoid it, draw numbers last, and those of several scopes in"
    assert re.search(f"deadlock while drawing a number of 'case' of scope .*{remedy}", str(refused))


SNAPSHOTS = [("postgres", "REPEATABLE READ"), ("postgres", "SERIALIZABLE"), ("mariadb", "REPEATABLE READ")]
"""On SERIALIZABLE the reads of MariaDB lock. MySQL reads the newest row whatever the transaction has seen before."""


@pytest.mark.parametrize(("kind", "level"), SNAPSHOTS)
def test_a_transaction_that_sees_the_past_is_told_so(shop, level):
    with shop.begin() as connection:
        add(connection)
    with at_level(shop, level) as late, shop.connect() as other:
        late.scalar(select(Row.n))
        add(other)
        other.commit()
        with pytest.raises(NumberConflict, match="has drawn a number of 'case' of scope 'a' since this one began"):
            add(late)
        late.rollback()
        assert add(late) == 3


# -- how long to wait


LIMITS = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgres": "SET LOCAL lock_timeout = '1ms'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
    "mariadb": "SET innodb_lock_wait_timeout = 0",
}
"""How an application bounds the wait; MySQL counts whole seconds."""


def test_a_session_waits_as_long_as_it_was_told(kind, shop):
    """For a new scope and an old one. Its own savepoint keeps the transaction alive on PostgreSQL too."""
    held = "another transaction has drawn numbers of 'case' of scope '{}' and has not ended"
    busy = "SQLite has one writer at a time: no number of 'case' of scope '{}'" if kind == "sqlite" else held
    with shop.begin() as connection:
        add(connection, "old")
    for scope, drawn in (("new", 1), ("old", 2)):
        with shop.connect() as first, shop.connect() as second:
            second.exec_driver_sql(LIMITS[kind])
            add(first, scope)
            with pytest.raises(NumberBusy, match=busy.format(scope)), second.begin_nested():
                plain.next(second, scope)
            with pytest.raises(NumberBusy, match="run the whole transaction again"):
                plain.next(second, scope)
            if kind == "postgres":
                with pytest.raises(InvalidDatabase, match="this transaction has failed before"):
                    plain.next(second, scope)
                second.rollback()
            first.rollback()
            assert add(second, scope) == drawn


@on("postgres", "mariadb")
def test_a_wait_that_the_server_ends_is_one_to_run_again(kind, shop):
    limit = "SET LOCAL statement_timeout = '20ms'" if kind == "postgres" else "SET max_statement_time = 0.02"
    with shop.connect() as first, shop.connect() as second:
        add(first, "a")
        second.exec_driver_sql(limit)
        with pytest.raises(NumberBusy, match="the server ended the wait for a number of 'case' of scope 'a'"):
            plain.next(second, "a")
        second.rollback()


@on("mariadb")
def test_the_last_insert_id_of_a_session_stays(shop):
    with shop.begin() as connection:
        connection.exec_driver_sql("DO LAST_INSERT_ID(77)")
        for _ in range(2):
            add(connection)
        assert connection.exec_driver_sql("SELECT LAST_INSERT_ID()").scalar() == 77


@contextmanager
def timed_out(url: str) -> Iterator[tuple[Connection, int, errors.AllocatorError]]:
    """A transaction that has drawn of scope "a" and waited for "b", its number, and its error."""
    with shop_at(url) as engine, engine.connect() as holder, engine.connect() as second:
        plain.next(holder, "b")
        second.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
        drawn = plain.next(second, "a").n
        with pytest.raises(NumberConflict) as refused:
            plain.next(second, "b")
        yield second, drawn, refused.value
        second.rollback()


@ON_MYSQL
def test_a_transaction_that_a_timeout_rolled_back_goes_on_with_nothing(kind, monkeypatch):
    """And the doctor tells of such a server where numbers are drawn."""
    name = "rollback-on-timeout"
    with own(kind, "--innodb-rollback-on-timeout=ON") as server:
        execute(server, "CREATE DATABASE timing_out")
        url = with_schema(sa.make_url(server).set(database="timing_out").render_as_string(hide_password=False))
        assert name not in {one.name for one in examine(url)}
        with timed_out(url) as (second, drawn, refused):
            assert type(refused) is NumberConflict
            assert "rolled back this whole transaction while it drew a number of 'case' of scope 'b'" in str(refused)
            with pytest.raises(InvalidDatabase, match=r"no number can be drawn here: .*rolled back"):
                add(second, "a")
            with pytest.raises(PendingRollbackError):
                second.commit()
            second.rollback()
            assert add(second, "a") == drawn
            second.commit()
        [found] = [one for one in examine(url) if one.name == name]
        assert found.severity == DANGER

        monkeypatch.setattr(MySQLNumbers, "rolls_back_at_timeout", lambda *_: False)
        with timed_out(url) as (second, drawn, refused):  # the control: taken for alive, it gives its number twice
            assert type(refused) is NumberBusy
            second.execute(insert(Row).values(scope="a", n=drawn))
            second.commit()
            assert written(second.engine, "a") == [plain.next(second, "a").n]


# -- by asyncio


@ON_TWO
def test_with_asyncio_by_run_sync(kind, shop):
    url = shop.url.set(drivername="sqlite+aiosqlite") if kind == "sqlite" else shop.url

    async def draw() -> list[Number]:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session, session.begin():
            drawn = [await session.run_sync(invoices.next, "tenant-7", MARCH)]
            with pytest.raises(InvalidDatabase, match="run_sync"):
                invoices.next(session)
        async with engine.begin() as connection:
            drawn += await connection.run_sync(invoices.next, "tenant-7", MARCH, 2)
            with pytest.raises(InvalidDatabase, match="run_sync"):
                invoices.next(connection)
        async with AsyncSession(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
            with pytest.raises(InvalidDatabase, match="commits each statement"):
                await session.run_sync(invoices.next)
        await engine.dispose()
        return drawn

    assert [one.n for one in asyncio.run(draw())] == [1, 2, 3]
