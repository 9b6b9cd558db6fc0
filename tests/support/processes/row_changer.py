"""Changes and deletes rows of `orders` and `line`, and knows what is left of those that were there."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, text

from support.processes.takeover_writers import PATIENCE

COLUMNS = {"orders": "what", "line": "order_id"}


class Changer(threading.Thread):
    """Of rows that no writer touches: known, by table and id. connect: for the driver."""

    def __init__(self, url: str, **connect: Any) -> None:
        super().__init__(daemon=True)
        self.engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=connect)
        self.known = {table: self.rows(table) for table in COLUMNS}
        self.most = {table: max(rows) for table, rows in self.known.items()}
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def rows(self, table: str, most: int = 2**31) -> dict[int, Any]:
        words = text(f"SELECT id, {COLUMNS[table]} FROM {table} WHERE id <= :most")
        with self.engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(words, {"most": most})}

    def run(self) -> None:
        used = frozenset(self.known["line"].values())
        mixed = (random.Random(7).sample(list(rows), len(rows)) for rows in self.known.values())
        changes = zip(itertools.count(), *map(itertools.cycle, mixed), itertools.cycle(used))
        try:
            with self.engine.connect() as connection:
                for number, order, line, other in changes:
                    if self.stopped.is_set():
                        return
                    self.change(connection, "orders", order, f"changed {number}", order not in used)
                    self.change(connection, "line", line, other, number % 3 == 0)
        except BaseException as error:
            self.error = error

    def change(self, connection: Connection, table: str, row: int, value: object, delete: bool) -> None:
        known = self.known[table]
        if row not in known:
            return
        words = f"DELETE FROM {table}" if delete else f"UPDATE {table} SET {COLUMNS[table]} = :value"
        words += " WHERE id = :id"
        if table == "line" and connection.dialect.name != "postgresql":
            words += " AND SLEEP(0.01) = 0"  # so that a change of this table has to wait for one
        done = connection.execute(text(words), {"id": row, "value": value})
        assert done.rowcount == 1, (words, row)
        if delete:
            known.pop(row)
        else:
            known[row] = value

    def check(self) -> None:
        """No row is lost, different or back."""
        assert self.error is None
        assert {table: self.rows(table, most) for table, most in self.most.items()} == self.known


@contextmanager
def changing(url: str, **connect: Any) -> Iterator[Changer]:
    """While it changes; its engine serves `check` afterwards."""
    changer = Changer(url, **connect)
    changer.start()
    try:
        yield changer
    finally:
        changer.stopped.set()
        changer.join(PATIENCE)
        changer.engine.dispose()
