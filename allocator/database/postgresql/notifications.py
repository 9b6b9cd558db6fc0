"""PostgreSQL's NOTIFY, which wakes who waits for rows that another transaction writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from allocator.errors import DatabaseUnavailable, InvalidDatabase

LOOK = 1.0
"""Seconds after which who waits looks whether it shall stop."""


@contextmanager
def notified(engine: Engine, channel: str, stopped: Callable[[float], bool]) -> Iterator[Callable[[float], object]]:
    """Yield a wait that a NOTIFY of the channel ends early, on PostgreSQL by psycopg; else `stopped`.

    stopped: waits so many seconds, at most until it returns True. On PostgreSQL that ends a wait within a second.

    It takes a connection of its own from the pool, and closes it at the end.
    """
    if not isinstance(engine, Engine):
        raise InvalidDatabase(
            f"follow takes an Engine of SQLAlchemy, got {type(engine).__name__}; with Django run: manage.py allocator "
            f"numbers assign TABLE.COLUMN {channel} --order-column C --follow"
        )
    if (engine.dialect.name, engine.dialect.driver) != ("postgresql", "psycopg"):
        yield stopped
        return
    failures: tuple[type[Exception], ...] = (SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
    try:
        connection = engine.raw_connection()
    except failures as error:
        raise DatabaseUnavailable(f"cannot listen for {channel}: {error}") from error
    driver: Any = connection.driver_connection
    connection.detach()
    try:
        driver.autocommit = True
        driver.execute(f'LISTEN "{channel}"')
        yield lambda seconds: hear(driver, seconds, stopped)
    except failures as error:
        raise DatabaseUnavailable(f"cannot listen for {channel}: {error}") from error
    finally:
        connection.close()


def hear(driver: Any, seconds: float, stopped: Callable[[float], bool]) -> None:
    """Wait for a notification, at most so many seconds."""
    while not stopped(0.0):
        heard = list(driver.notifies(timeout=min(seconds, LOOK), stop_after=1))
        seconds -= LOOK
        if heard or seconds <= 0:
            return
