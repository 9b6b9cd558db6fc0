"""Processes that write rows without a number and assign numbers after their commit, and are killed at any statement.

The check is that of `number_writers`, which shares no code with the library.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, event, func, insert, select
from sqlalchemy.exc import DBAPIError

from allocator import Numbers
from allocator.database.verbs.waiting_number_rows import WaitingNumbers
from allocator.errors import DatabaseUnavailable, NumberConflict
from support.processes.number_writers import ROLLED_BACK, Writer, Writers, engine_of, is_lost

rows = Table(
    "waited",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("scope", String(64), index=True),
    Column("n", BigInteger),
)
"""Without a unique key on the numbers: a duplicate would be written, and found."""
COUNTS = (1, 9, 100, 1000)
"""How many rows a transaction writes."""


def waiting() -> WaitingNumbers:
    return Numbers("soak").waiting(rows, number="n", scope="scope", order_by="id", at_once=400)


class WaitingWriter(Writer):
    """One process: writes rows, and assigns the numbers of a scope or of all; may kill itself before each statement."""

    table = rows

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.waiting = waiting()
        event.listen(self.engine, "before_cursor_execute", self.before_a_statement)
        event.listen(self.engine, "commit", self.before_a_statement)

    def before_a_statement(self, *_: object) -> None:
        if self.progress.step and self.rnd.random() < self.odds:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, connection: Connection) -> None:
        scope, count = f"scope-{self.rnd.randrange(self.scopes)}", self.rnd.choice(COUNTS)
        self.progress.step = 2
        connection.execute(insert(rows), [{"scope": scope}] * count)
        self.progress.step = 3
        if self.rnd.random() < ROLLED_BACK:
            connection.rollback()
        else:
            connection.commit()
            self.progress.written += count
        self.progress.step = 1
        try:
            self.waiting.assign(self.engine, self.rnd.choice([scope, None]))
        except NumberConflict:
            pass  # somebody else will
        except DatabaseUnavailable as error:
            if not isinstance(error.__cause__, DBAPIError) or is_lost(error.__cause__):
                raise
        self.progress.step = 4


class WaitingWriters(Writers):
    writer = WaitingWriter


def unnumbered(url: str) -> int:
    """How many rows have no number after one more call."""
    engine = engine_of(url)
    waiting().assign(engine)
    with engine.connect() as connection:
        found = connection.scalar(select(func.count()).where(rows.c.n.is_(None)))
    engine.dispose()
    return int(found or 0)
