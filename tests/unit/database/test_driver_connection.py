"""A claim's connection: the errors are those of SQLAlchemy, and what cannot be trusted is not used again."""

from __future__ import annotations

import logging
import sqlite3

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from allocator.database.connection import Runner
from allocator.database.dialect import Dialect
from allocator.database.driver_connection import DriverConnection, by_driver, is_watched
from allocator.database.sqlite.dialect import SQLite
from allocator.errors import AllocatorError


class Moved(SQLite):
    """As a server that has become a replica."""

    misplaced = frozenset({"SQLITE_READONLY"})


class Cursor:
    """Raises at the given step."""

    rowcount = 1
    description = ()

    def __init__(self, step: str, error: BaseException) -> None:
        self.step, self.error = step, error

    def execute(self, sql: str, parameters: object) -> None:
        self.reach("execute")

    def fetchall(self) -> None:
        self.reach("fetchall")

    def reach(self, step: str) -> None:
        if step == self.step:
            raise self.error


@pytest.fixture
def engine():
    found = create_engine("sqlite://", poolclass=QueuePool, pool_size=1)
    yield found
    found.dispose()


def failing(engine: Engine, step: str, error: BaseException) -> DriverConnection:
    connection = DriverConnection(engine, Moved(), [])
    connection.connection.cursor = lambda: Cursor(step, error)  # type: ignore[method-assign]
    return connection


def refused(code: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("no")
    error.sqlite_errorname = code
    return error


def test_it_goes_back_to_the_pool(engine):
    with DriverConnection(engine, SQLite(), []) as connection:
        first = connection.connection.dbapi_connection
        assert connection.exec_driver_sql("SELECT ?", (7,)).all() == [(7,)]
    with DriverConnection(engine, SQLite(), []) as connection:
        assert connection.connection.dbapi_connection is first


@pytest.mark.parametrize("step", ["execute", "fetchall"])
def test_an_error_of_the_driver_is_wrapped_and_the_connection_stays(engine, step):
    with failing(engine, step, refused("SQLITE_BUSY")) as connection:
        with pytest.raises(OperationalError) as caught:
            connection.exec_driver_sql("SELECT 1").all()
        assert not caught.value.connection_invalidated
        assert connection.connection.is_valid


@pytest.mark.parametrize("step", ["execute", "fetchall"])
def test_after_an_error_of_a_server_that_is_left_no_connection_is_used_again(engine, step):
    with failing(engine, step, refused("SQLITE_READONLY")) as connection:
        first = connection.connection.dbapi_connection
        with pytest.raises(OperationalError) as caught:
            connection.exec_driver_sql("SELECT 1").all()
        assert caught.value.connection_invalidated
        assert connection.invalidated
    with engine.connect() as other:
        assert other.connection.dbapi_connection is not first


@pytest.mark.parametrize("step", ["execute", "fetchall"])
def test_what_interrupts_a_statement_ends_its_connection(engine, step):
    """Half of an answer may still be on the wire, which the next statement would read as its own."""
    with failing(engine, step, KeyboardInterrupt()) as connection:
        first = connection.connection.dbapi_connection
        with pytest.raises(KeyboardInterrupt):
            connection.exec_driver_sql("SELECT 1").all()
    with engine.connect() as other:
        assert other.connection.dbapi_connection is not first


def test_an_error_at_connecting_is_wrapped():
    engine = create_engine("sqlite:////no/such/folder/ids.db")
    with pytest.raises(OperationalError):
        DriverConnection(engine, SQLite(), [])


@pytest.mark.parametrize("of", ["an engine", "all engines"])
def test_who_listens_to_statements_or_logs_them_is_served_by_sqlalchemy(engine, of):
    def listen(*_: object) -> None: ...

    target = engine if of == "an engine" else Engine
    assert not is_watched(engine)
    for name in ("before_cursor_execute", "after_cursor_execute"):
        event.listen(target, name, listen)
        assert is_watched(engine)
        event.remove(target, name, listen)
    assert not is_watched(engine)


def test_who_logs_statements_is_served_by_sqlalchemy(engine, caplog):
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        assert is_watched(engine)


# -- the connection that stays for the next claim


@by_driver
def claim(connection: Connection, dialect: Dialect) -> object:
    assert connection.exec_driver_sql("SELECT 1").all() == [(1,)]
    return connection.connection.dbapi_connection


def other_verb(connection: Connection, dialect: Dialect) -> object:
    return connection.connection.dbapi_connection


def fail(connection: Connection, dialect: Dialect) -> None:
    connection.exec_driver_sql("SELECT nothing")


fail_a_claim = by_driver(lambda connection, dialect: connection.exec_driver_sql("SELECT nothing"))


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setattr(SQLite, "pool_size", 2)
    found = Runner(f"sqlite:///{tmp_path}/ids.db", timeout=0.05)
    yield found
    found.close()


def lent(runner: Runner) -> int:
    return runner.engine.pool.checkedout()  # type: ignore[attr-defined, no-any-return]


def test_the_next_claim_has_the_connection_and_the_cursor_of_the_last(runner):
    first = runner.run(claim)
    cursor = runner._idle[0].info["cursor"]

    assert runner.run(claim) is first
    assert (lent(runner), runner._idle[0].info["cursor"]) == (1, cursor)


def test_any_other_verb_finds_it_in_the_pool(runner):
    first = runner.run(claim)

    assert runner.run(other_verb) is first
    assert (lent(runner), runner._idle) == (0, [])


def test_the_last_connection_of_the_pool_goes_back_to_whoever_waits(runner):
    with runner.engine.connect():
        runner.run(claim)
        with runner.engine.connect():
            pass


@pytest.mark.parametrize("verb", [fail, fail_a_claim])
def test_after_an_error_the_pool_decides_whether_it_is_used_again(runner, verb):
    """Its server may be lost: the pool then closes each connection that is older than the error."""
    first = runner.run(claim)
    with pytest.raises(AllocatorError):
        runner.run(verb)
    assert lent(runner) == 0

    with runner.engine.connect() as lost:
        runner.engine.pool._invalidate(lost.connection)
    assert runner.run(claim) is not first


def test_after_a_cursor_failed_the_next_claim_has_a_new_one(runner):
    runner.run(claim)
    cursor = runner._idle[0].info["cursor"]
    with pytest.raises(AllocatorError):
        runner.run(fail_a_claim)
    runner.run(claim)

    assert runner._idle[0].info["cursor"] is not cursor


def test_a_claim_that_ends_after_the_close_leaves_no_connection_open(runner):
    @by_driver
    def closing(connection: Connection, dialect: Dialect) -> None:
        runner.close()

    runner.run(closing)
    assert runner._idle == []


def test_a_closed_one_keeps_none(runner):
    first = runner.run(claim)
    runner.close()

    assert runner._idle == []
    with pytest.raises(sqlite3.ProgrammingError):
        first.execute("SELECT 1")


def test_a_fork_leaves_it_to_the_parent(runner):
    first = runner.run(claim)
    idle = runner._idle
    runner.abandon()

    assert runner.run(claim) is not first
    assert idle[0].connection.dbapi_connection is first
