"""A shop with numbered rows, for the tests of numbers: drawn in its transaction, after its commit, and by command."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    MetaData,
    String,
    UniqueConstraint,
    create_engine,
    delete,
    event,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from allocator.database.tables import number, number_void
from support.processes.patience import until
from support.servers.administrator import SEEN_EACH, waits

MARCH, EARLIER = date(2026, 3, 9), date(2025, 12, 31)
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
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


def emptied(engine: Engine, tables: MetaData) -> Engine:
    """With those of an application, and nothing in them nor in those of numbers."""
    tables.create_all(engine)
    with engine.begin() as connection:
        for table in (number, number_void, *tables.sorted_tables):
            connection.execute(delete(table))
    return engine


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
def noting(engine: Engine | type[Engine], name: str) -> Iterator[list[tuple[Any, ...]]]:
    """What SQLAlchemy tells of its events meanwhile."""
    told: list[tuple[Any, ...]] = []

    def note(*words: Any) -> None:
        told.append(words)

    event.listen(engine, name, note)
    try:
        yield told
    finally:
        event.remove(engine, name, note)


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


def seen_waiting(kind: str, watcher: Connection, *calls: Future[Any]) -> bool:
    return until(lambda: waits(kind, watcher) or any(call.done() for call in calls), 60, every=SEEN_EACH)
