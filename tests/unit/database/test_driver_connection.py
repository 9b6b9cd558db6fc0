"""A claim's connection: the errors are those of SQLAlchemy, and what cannot be trusted is not used again."""

from __future__ import annotations

import logging
import sqlite3

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from allocator.database.driver_connection import DriverConnection, is_watched
from allocator.database.sqlite.dialect import SQLite
from allocator.database.sqlite.error_codes import CODES


class Moved(SQLite):
    """As a server that has become a replica."""

    codes = CODES._replace(misplaced=frozenset({"SQLITE_READONLY"}))


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
    found = create_engine("sqlite://", poolclass=QueuePool)
    yield found
    found.dispose()


def failing(engine: Engine, step: str, error: BaseException) -> DriverConnection:
    connection = DriverConnection(engine, Moved())
    connection.connection.cursor = lambda: Cursor(step, error)  # type: ignore[method-assign]
    return connection


def refused(code: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("no")
    error.sqlite_errorname = code
    return error


def test_it_goes_back_to_the_pool(engine):
    with DriverConnection(engine, SQLite()) as connection:
        first = connection.connection.dbapi_connection
        assert connection.exec_driver_sql("SELECT ?", (7,)).all() == [(7,)]
    with DriverConnection(engine, SQLite()) as connection:
        assert connection.connection.dbapi_connection is first


def test_an_error_of_the_driver_is_wrapped_and_the_connection_stays(engine, subtests):
    for step in ["execute", "fetchall"]:
        with subtests.test(step=step), failing(engine, step, refused("SQLITE_BUSY")) as connection:
            with pytest.raises(OperationalError) as caught:
                connection.exec_driver_sql("SELECT 1").all()
            assert not caught.value.connection_invalidated
            assert connection.connection.is_valid


def test_after_an_error_of_a_server_that_is_left_no_connection_is_used_again(engine, subtests):
    for step in ["execute", "fetchall"]:
        with subtests.test(step=step):
            with failing(engine, step, refused("SQLITE_READONLY")) as connection:
                first = connection.connection.dbapi_connection
                with pytest.raises(OperationalError) as caught:
                    connection.exec_driver_sql("SELECT 1").all()
                assert caught.value.connection_invalidated
                assert connection.invalidated
            with engine.connect() as other:
                assert other.connection.dbapi_connection is not first


def test_an_error_at_connecting_is_wrapped():
    engine = create_engine("sqlite:////no/such/folder/ids.db")
    with pytest.raises(OperationalError):
        DriverConnection(engine, SQLite())


def test_who_listens_to_statements_or_logs_them_is_served_by_sqlalchemy(engine):
    for of in ["an engine", "all engines"]:

        def listen(*_: object) -> None: ...

        target = engine if of == "an engine" else Engine
        assert not is_watched(engine), of
        for name in ("before_cursor_execute", "after_cursor_execute"):
            event.listen(target, name, listen)
            assert is_watched(engine), of
            event.remove(target, name, listen)
        assert not is_watched(engine), of


def test_who_logs_statements_is_served_by_sqlalchemy(engine, caplog):
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        assert is_watched(engine)
