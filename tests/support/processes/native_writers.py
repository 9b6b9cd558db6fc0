"""Writers of a column that has ids already: old ones insert no id, new ones insert that of a tag."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text

from allocator import Allocator

PATIENCE = 120.0
"""Seconds until a writer that does not come is given up."""


class Writer(threading.Thread):
    """Inserts an order and a line of it in each transaction, until it is told to stop or fails."""

    def __init__(self, url: str, name: str, tag: str, progress: threading.Condition) -> None:
        super().__init__(name=name, daemon=True)
        self.url, self.tag, self.progress = url, tag, progress
        self.ids: list[int] = []
        self.error: Exception | None = None
        self.longest = 0.0
        self._stopped = threading.Event()

    def run(self) -> None:
        engine = create_engine(self.url)
        ids = Allocator(self.url) if self.tag else None
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                new = insert_order(engine, ids.next_id(self.tag) if ids else None)
                self.longest = max(self.longest, time.monotonic() - began)
                self.ids.append(new)
                with self.progress:
                    self.progress.notify_all()
        except Exception as error:
            self.error = error
            with self.progress:
                self.progress.notify_all()
        finally:
            if ids:
                ids.close()
            engine.dispose()

    def stop(self) -> None:
        self._stopped.set()


def insert_order(engine: Engine, new: int | None = None) -> int:
    with engine.begin() as connection:
        made = new if new is not None else insert_raw(connection)
        if new is not None:
            connection.execute(text("INSERT INTO orders (id, what) VALUES (:id, 'new')"), {"id": new})
        connection.execute(text("INSERT INTO line (order_id) VALUES (:id)"), {"id": made})
        return made


def insert_raw(connection: Connection) -> int:
    """As the old writers do."""
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(text("INSERT INTO orders (what) VALUES ('old') RETURNING id")) or 0)
    done: Any = connection.execute(text("INSERT INTO orders (what) VALUES ('old')"))
    return int(done.lastrowid)


class Writers:
    """Old and new ones. A test waits for what they have written, never for a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.all: list[Writer] = []
        self._progress = threading.Condition()

    def add(self, count: int, tag: str = "") -> list[Writer]:
        first = len(self.all)
        names = [f"{tag or 'old'}-{number}" for number in range(first, first + count)]
        made = [Writer(self.url, name, tag, self._progress) for name in names]
        self.all += made
        for one in made:
            one.start()
        return made

    def wait_for(self, more: int, writers: list[Writer] | None = None) -> None:
        """Until each has written so many rows more."""
        of = self.all if writers is None else writers
        least = {one.name: len(one.ids) + more for one in of}
        with self._progress:
            self._progress.wait_for(
                lambda: all(len(one.ids) >= least[one.name] or one.error for one in of), timeout=PATIENCE
            )
        for one in of:
            if one.error:
                raise one.error
            assert len(one.ids) >= least[one.name], one.name

    def stop(self, writers: list[Writer] | None = None) -> None:
        of = self.all if writers is None else writers
        for one in of:
            one.stop()
        for one in of:
            one.join(PATIENCE)
        assert [one.error for one in of if one.error] == []

    def ids(self) -> list[int]:
        return [number for one in self.all for number in one.ids]


@contextmanager
def writing(url: str) -> Iterator[Writers]:
    writers = Writers(url)
    try:
        yield writers
    finally:
        for one in writers.all:
            one.stop()
        for one in writers.all:
            one.join(PATIENCE)
