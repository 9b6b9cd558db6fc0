"""Which connections are used again, and which exceptions reach the caller as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import QueuePool

from allocator.database import connection as module
from allocator.database.connection import Runner
from allocator.errors import AllocatorError, DatabaseUnavailable, SchemaOutOfDate
from allocator.runtime.thread_pool import takes_signals


class TooLate(Exception):
    """As a task queue raises it in a signal handler, at a soft time limit."""


INTERRUPTS = (TooLate(), MemoryError(), ValueError(), KeyboardInterrupt(), SystemExit())


def plain(connection: Connection, dialect: object, error: BaseException | None = None, sql: str = "SELECT 1") -> object:
    """Raises in the middle of its statement."""
    used = connection.connection.dbapi_connection
    connection.exec_driver_sql(sql)
    if error:
        raise error
    return used


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """With a pool, as of a server."""
    monkeypatch.setattr(module, "NullPool", QueuePool)
    made = Runner(f"sqlite:///{tmp_path}/ids.db")
    yield made
    made.close()


def test_what_the_database_answers_is_translated_and_its_connection_stays(runner):
    used = runner.run(plain)
    with pytest.raises(SchemaOutOfDate):
        runner.run(plain, None, "SELECT 1 FROM allocator_nowhere")
    with pytest.raises(DatabaseUnavailable, match="ours"):
        runner.run(plain, DatabaseUnavailable("ours"))

    assert runner.run(plain) is used


def test_what_interrupts_a_verb_reaches_the_caller_and_ends_the_connection(runner):
    """Half of an answer may still be on the wire, which the next statement would read as its own."""
    for error in INTERRUPTS:
        used = runner.run(plain)
        with pytest.raises(type(error)) as caught:
            runner.run(plain, error)

        assert caught.value is error
        assert runner.run(plain) is not used, error


def test_what_sqlalchemy_wraps_reaches_the_caller_too(runner):
    used, error = runner.run(plain), TooLate()
    with pytest.raises(TooLate) as caught:
        runner.run(plain, StatementError("no cursor", "SELECT 1", {}, error))

    assert caught.value is error
    assert runner.run(plain) is not used


def test_a_database_in_memory_is_not_ended():
    runner = Runner("sqlite://")

    @event.listens_for(runner.engine, "do_execute")
    def interrupt(cursor: object, sql: str, *_: object) -> None:
        if sql == "SELECT 2":
            raise KeyboardInterrupt

    used = runner.run(plain)
    for error in INTERRUPTS:
        with pytest.raises(type(error)):
            runner.run(plain, error)
    with pytest.raises(KeyboardInterrupt):
        runner.run(plain, None, "SELECT 2")

    assert runner.run(plain) is used
    runner.close()


def test_an_interrupt_while_a_connection_is_opened_reaches_the_caller(runner):
    """A hook that fails with an error of Python's is told as such, since a driver refuses arguments with them too."""
    raised: list[BaseException] = [TooLate(), MemoryError(), TimeoutError(), KeyboardInterrupt(), KeyError("token")]

    @event.listens_for(runner.engine, "do_connect")
    def hook(*_: object) -> None:
        if raised:
            raise raised.pop(0)

    for error in raised[:4]:
        with pytest.raises(type(error)) as caught:
            runner.run(plain)
        assert caught.value is error
    with pytest.raises(AllocatorError, match="cannot be used: KeyError: 'token'; the driver, or a listener"):
        runner.run(plain)
    runner.run(plain)


def test_a_verb_runs_where_no_signal_handler_can_interrupt_the_pool(runner):
    """One that raised inside of the pool's lock would leave it taken, and one a little later lose a connection."""
    assert takes_signals()
    assert not runner.run(lambda *_: takes_signals())
