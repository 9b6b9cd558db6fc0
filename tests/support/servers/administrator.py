"""What an administrator does by hand, past the library."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, text


@contextmanager
def opened(url: str | URL, **settings: Any) -> Iterator[Engine]:
    engine = create_engine(url, **settings)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def administrator(url: str | URL, **connect: object) -> Iterator[Connection]:
    """Each statement is committed for itself. connect: what the driver is given besides."""
    with opened(url, isolation_level="AUTOCOMMIT", connect_args=connect) as engine, engine.connect() as connection:
        yield connection


def execute(url: str, *statements: str) -> None:
    """Each committed for itself, by a connection of its own."""
    with administrator(url) as connection:
        percent = "%" if connection.engine.name == "sqlite" else "%%"  # others fill in what was not given
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", percent))


def values(url: str, question: str) -> list[Any]:
    """The first column of what is there."""
    with opened(url) as engine, engine.connect() as connection:
        return list(connection.scalars(text(question)))


# -- what servers tell of their locks


SEEN_EACH = 0.2
"""Seconds. MariaDB answers from a copy, which it makes anew only after a tenth of a second without a question."""


def waits(kind: str, watcher: Connection) -> bool:
    """Whether some session waits for a lock, as the server says."""
    question = {
        "postgres": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()",
        "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
        "mariadb": "SELECT count(*) FROM information_schema.innodb_lock_waits",
    }[kind]
    found = watcher.scalar(text(question))
    watcher.rollback()
    return bool(found)
