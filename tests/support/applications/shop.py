"""What the tests of numbers share: emptied tables, what SQLAlchemy tells, and who waits for whom."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import date
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, delete, event

from allocator.database.tables import number, number_void
from support.processes.patience import until
from support.servers.administrator import SEEN_EACH, waits

MARCH = date(2026, 3, 9)
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def emptied(engine: Engine, tables: MetaData) -> Engine:
    """With those of an application, and nothing in them nor in those of numbers."""
    tables.create_all(engine)
    with engine.begin() as connection:
        for table in (number, number_void, *tables.sorted_tables):
            connection.execute(delete(table))
    return engine


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


def seen_waiting(kind: str, watcher: Connection, *calls: Future[Any]) -> bool:
    return until(lambda: waits(kind, watcher) or any(call.done() for call in calls), 60, every=SEEN_EACH)
