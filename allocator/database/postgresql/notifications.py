"""PostgreSQL's NOTIFY, which wakes who waits for rows that another transaction writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from allocator.errors import DatabaseUnavailable


@contextmanager
def notified(engine: Engine, channel: str, wait: Callable[[float], object]) -> Iterator[Callable[[float], object]]:
    """Yield a wait that a NOTIFY of the channel ends early, on PostgreSQL by psycopg; else `wait`.

    It takes a connection of its own from the pool, and closes it at the end.
    """
    if (engine.dialect.name, engine.dialect.driver) != ("postgresql", "psycopg"):
        yield wait
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
        yield lambda seconds: list(driver.notifies(timeout=seconds, stop_after=1))
    except failures as error:
        raise DatabaseUnavailable(f"cannot listen for {channel}: {error}") from error
    finally:
        connection.close()
