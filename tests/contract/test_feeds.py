"""Rows that get a position after their commit, for readers that poll: on every database."""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, SmallInteger, String, insert, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.applications.shop import emptied
from support.kit import ON_SERVERS, SQLITE
from support.processes.patience import until
from support.servers.administrator import opened

from allocator import Numbers
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, SchemaOutOfDate
from allocator.numbers import Feed, WaitingNumbers


class Base(DeclarativeBase):
    pass


class Happened(Base):
    __tablename__ = "happened"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    note: Mapped[str | None] = mapped_column(String(20))


class Narrow(Base):
    __tablename__ = "narrow"
    id: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int | None] = mapped_column(SmallInteger)
    note: Mapped[str | None] = mapped_column(String(20))


feed = Feed(Happened, position="position", order_by="id")


@pytest.fixture
def shop(url: str) -> Iterator[Engine]:
    """Who waits for a lock gives up, as MySQL does by itself."""
    options = {"connect_args": {"options": "-c lock_timeout=20s"}} if url.startswith("postgres") else {}
    with opened(url, pool_size=10, **options) as engine:
        yield emptied(engine, Base.metadata)


def add(engine: Engine, *ids: int) -> None:
    with engine.begin() as connection:
        connection.execute(insert(Happened), [{"id": one} for one in ids])


def read(engine: Engine, last: int = 0) -> list[tuple[int, int]]:
    """What a reader does: the ids above a position, each with its own."""
    with engine.connect() as connection:
        found = connection.execute(
            select(Happened.id, Happened.position).where(Happened.position > last).order_by(Happened.position)
        )
        return [tuple(row) for row in found]


def test_rows_are_numbered_in_their_order_from_one_call_to_the_next(shop):
    add(shop, 30, 10, 20)
    assert feed.assign(shop) == 3
    assert feed.assign(shop) == 0
    add(shop, 5)
    assert feed.assign(shop) == 1

    assert read(shop) == [(10, 1), (20, 2), (30, 3), (5, 4)]
    assert (feed.name, repr(feed)) == ("happened.position", "Feed('happened.position')")


@ON_SERVERS
def test_a_row_that_commits_late_is_read_later_and_not_missed(shop):
    with shop.connect() as late:
        late.execute(insert(Happened).values(id=1))
        add(shop, 2)
        feed.assign(shop)
        assert read(shop) == [(2, 1)]
        late.commit()
        feed.assign(shop)

    with shop.connect() as connection:
        assert not connection.scalar(select(Happened.id).where(Happened.id > 2))  # the control: who polls ids misses it
    assert read(shop, last=1) == [(1, 2)]


@ON_SERVERS
def test_a_row_that_somebody_holds_holds_nobody_up_and_leaves_no_gap(shop):
    add(shop, *range(1, 21))
    with shop.connect() as holder:
        holder.execute(update(Happened).where(Happened.id == 3).values(note="x"))
        assert feed.assign(shop) == 19
        assert feed.assign(shop) == 0
        with shop.begin() as writer:  # whose rows lie in the gaps between
            writer.execute(insert(Happened), [{"id": 0}, {"id": 40}, {"id": 30}])
    assert feed.assign(shop) == 4

    assert [position for _, position in read(shop)] == list(range(1, 24))


@ON_SERVERS  # the integers of SQLite have one width
def test_a_column_without_room_takes_no_position(shop):
    narrow = Feed(Narrow, position="position", order_by="id")
    with shop.begin() as connection:
        if shop.dialect.name != "postgresql":
            connection.execute(text("SET SESSION sql_mode = ''"))  # cuts numbers down in place of an error
        Numbers(narrow.name).set(connection, 32_766)
        connection.execute(insert(Narrow), [{"id": one} for one in (1, 2, 3)])
    with pytest.raises(
        InvalidSetting, match="narrow.position has no room for numbers above 32766; nothing was written"
    ):
        narrow.assign(shop)

    with shop.connect() as connection:
        assert set(connection.scalars(select(Narrow.position))) == {None}


def test_a_feed_takes_integers_and_its_follower_an_engine():
    with pytest.raises(InvalidSetting, match=r"positions are integers, and narrow\.note is VARCHAR\(20\)"):
        Feed(Narrow, position="note", order_by="id")
    with pytest.raises(InvalidDatabase, match="give a SQLAlchemy Engine, sessionmaker, .* got object"):
        feed.follow(object())


@SQLITE
def test_a_follower_tries_again_after_an_error(shop, monkeypatch, caplog):
    add(shop, 1)
    stop, assign = threading.Event(), WaitingNumbers.assign
    calls: list[Any] = [DatabaseUnavailable("away"), SchemaOutOfDate("renamed"), assign, assign]

    def next_call(rows: WaitingNumbers, engine: Engine) -> int:
        if len(calls) == 1:
            stop.set()
        call = calls.pop(0)
        if isinstance(call, Exception):
            raise call
        return call(rows, engine)

    monkeypatch.setattr(WaitingNumbers, "assign", next_call)
    monkeypatch.setattr("allocator.database.verbs.waiting_number_rows.RETRY_PAUSE", 0.0)
    monkeypatch.setattr("allocator.database.verbs.waiting_number_rows.MEND_PAUSE", 0.0)
    with caplog.at_level(logging.WARNING, "allocator"):
        assert feed.follow(shop, stop, every=0.0) == 1

    assert [one.message.partition("wait: ")[2] for one in caplog.records] == ["away", "renamed"]


@SQLITE
def test_a_command_follows_until_it_is_stopped(shop, url):
    words = "numbers assign happened.position happened.position --reset never --order-column id --follow"
    command = [sys.executable, "-m", "allocator", *words.split(), "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        add(shop, 1, 2)
        assert until(lambda: len(read(shop)) == 2)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, "2 rows numbered\n")
