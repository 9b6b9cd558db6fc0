"""Processes that draw numbers without gaps and write a row for each, roll back at random, and are killed.

The check reads rows and counters by SQL and shares no code with the library.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from tqdm import tqdm

from allocator import Numbers
from allocator.database.verbs.waiting_number_rows import WaitingNumbers
from allocator.errors import DatabaseUnavailable, NumberConflict
from support.faults.trouble import ServerPlace
from support.processes.crew import PROCESSES

rows = Table("numbered", MetaData(), Column("scope", String(64)), Column("n", BigInteger))
"""Without a key: a duplicate would be written, and found."""

STEPS = ("connecting", "drawing", "inserting", "ending", "ended")
"""Steps of a process; it may kill itself before each."""
ROLLED_BACK = 0.2
COUNTS = (1, 1, 1, 9)
"""How many numbers a transaction draws."""
PAUSE = 0.05
"""Seconds between attempts to connect to a server that was killed."""


def engine_of(url: str) -> Engine:
    """With more patience than SQLite's 5 seconds: writers overtake whoever waits."""
    return create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})


class Way:
    """How numbers are drawn: as the library says."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.numbers = engine, Numbers("soak")

    def draw(self, connection: Connection, scope: str, count: int) -> list[int]:
        return [number.n for number in self.numbers.next(connection, scope, count=count)]


class OnItsOwn(Way):
    """A control: drawn on another connection, and committed before the row is written."""

    def draw(self, connection: Connection, scope: str, count: int) -> list[int]:
        with self.engine.begin() as own:
            return super().draw(own, scope, count)


class ReadFirst(Way):
    """A control: reads the greatest number in the table and adds one."""

    def draw(self, connection: Connection, scope: str, count: int) -> list[int]:
        greatest = connection.scalar(text("SELECT max(n) FROM numbered WHERE scope = :scope"), {"scope": scope}) or 0
        return list(range(greatest + 1, greatest + 1 + count))


class Progress(ctypes.Structure):
    """Of a writer, in shared memory: a question to SQLite would wait for as long as others write."""

    _fields_ = (("step", ctypes.c_int), ("written", ctypes.c_longlong))


class Writer:
    """One process: runs transactions, each with its numbers and their rows, until it is killed.

    odds: that it kills itself, at each step. progress: what the others see of it.
    """

    table = rows

    def __init__(self, url: str, way: type[Way], seed: int, scopes: int, odds: float, progress: Any) -> None:
        self.rnd, self.progress, self.scopes, self.odds = random.Random(seed), progress, scopes, odds
        self.engine = engine_of(url)
        self.way = way(self.engine)

    def run(self) -> NoReturn:
        while True:
            try:
                self.at(0)
                with self.engine.connect() as connection:
                    while True:
                        self.write(connection)
            except (DBAPIError, DatabaseUnavailable) as error:
                if not is_lost(error):
                    raise
                time.sleep(PAUSE)

    def write(self, connection: Connection) -> None:
        scope = f"scope-{self.rnd.randrange(self.scopes)}"
        self.at(1)
        try:
            drawn = self.way.draw(connection, scope, self.rnd.choice(COUNTS))
        except NumberConflict:
            connection.rollback()
            return
        self.at(2)
        connection.execute(insert(rows), [{"scope": scope, "n": n} for n in drawn])
        self.at(3)
        if self.rnd.random() < ROLLED_BACK:
            connection.rollback()
        else:
            connection.commit()
            self.progress.written += len(drawn)
        self.at(4)

    def at(self, step: int) -> None:
        self.progress.step = step
        if self.rnd.random() < self.odds:
            os.kill(os.getpid(), signal.SIGKILL)


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or could not be made: the server was killed."""
    found = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
    return isinstance(found, DBAPIError) and (found.connection_invalidated or found.statement is None)


def run(writer: type[Writer], *words: Any) -> NoReturn:
    writer(*words).run()


class Running(NamedTuple):
    process: BaseProcess
    progress: Any


class Writers:
    """Keeps `count` writers running, on tables that were emptied.

    killed: how many were, by their step. written: how many numbers, at least.
    """

    writer = Writer

    def __init__(self, url: str, *, count: int, scopes: int, odds: float, way: type[Way] = Way) -> None:
        self.url, self.words = url, (scopes, odds)
        self.way, self.count, self.rnd = way, count, random.Random(count)
        self.started, self.killed, self.by_the_killed = 0, Counter[str](), 0

    def start(self) -> Running:
        self.started += 1
        progress = PROCESSES.RawValue(Progress)
        words = (self.writer, self.url, self.way, self.started, *self.words, progress)
        process = PROCESSES.Process(target=run, args=words, daemon=True)
        process.start()
        return Running(process, progress)

    @property
    def written(self) -> int:
        return self.by_the_killed + sum(one.progress.written for one in self.running)

    def kill_one(self) -> None:
        """Kill one that has begun to draw, at any moment of its step."""
        if drawing := [one for one in self.running if one.progress.step]:
            self.rnd.choice(drawing).process.kill()

    def replace_the_killed(self) -> None:
        for at, (process, progress) in enumerate(self.running):
            if not process.is_alive():
                assert process.exitcode == -signal.SIGKILL
                self.killed[STEPS[progress.step]] += 1
                self.by_the_killed += progress.written
                self.running[at] = self.start()

    def write(self, numbers: int, server: ServerPlace | None, *, every: float, server_kills: int, name: str) -> int:
        """Until so many are written: kill one each `every` seconds, and the server so many times; how often it was."""
        restarts = 0
        with tqdm(total=numbers, desc=name) as bar:
            while (written := self.written) < numbers:
                bar.update(written - bar.n)
                if server and written > numbers * (restarts + 1) / (server_kills + 1):
                    server.kill()
                    server.start()
                    restarts += 1
                self.kill_one()
                self.replace_the_killed()
                time.sleep(every)
        return restarts

    def __enter__(self) -> Self:
        empty_tables(self.url, self.writer.table)
        self.running = [self.start() for _ in range(self.count)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in self.running:
            one.process.kill()
            one.process.join()


def empty_tables(url: str, table: Table) -> None:
    engine = engine_of(url)
    table.drop(engine, checkfirst=True)
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM allocator_number"))
    engine.dispose()


class Found(NamedTuple):
    """Of all scopes: rows, numbers that no row has, rows with a number of another row, numbers above their counter."""

    rows: int
    gaps: int
    duplicates: int
    ahead: int

    @property
    def wrong(self) -> int:
        return self.gaps + self.duplicates + self.ahead


CHECK = """
SELECT scope, max(n) AS greatest, min(n) AS least, count(n) AS found, count(DISTINCT n) AS different, 0 AS counter
FROM {table} GROUP BY scope
UNION ALL SELECT scope, 0, 1, 0, 0, n FROM allocator_number
"""
"""One statement, so that rows and counters are of one moment: the commit of a killed client may still be on its way."""


def check(url: str, table: Table = rows) -> Found:
    engine = engine_of(url)
    with engine.connect() as connection:
        told = connection.execute(text(CHECK.format(table=table.name))).all()
    engine.dispose()
    assert all(one.least >= 1 for one in told)
    scopes = [[one for one in told if one.scope == scope] for scope in {one.scope for one in told}]
    return Found(*map(sum, zip((0, 0, 0, 0), *map(figures_of, scopes), strict=True)))


def figures_of(told: list[Any]) -> tuple[int, int, int, int]:
    """Judge the rows and the counter of one scope."""
    greatest, found, different, counter = (
        max(getattr(one, name) for one in told) for name in ("greatest", "found", "different", "counter")
    )
    return found, max(greatest, counter) - different, found - different, max(0, greatest - counter)


# -- processes that write rows without a number and assign numbers after their commit


waited = Table(
    "waited",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("scope", String(64), index=True),
    Column("n", BigInteger),
)
"""Without a unique key on the numbers: a duplicate would be written, and found."""
BATCHES = (1, 9, 100, 1000)
"""How many rows a transaction writes."""


def waiting() -> WaitingNumbers:
    return Numbers("soak").waiting(waited, number="n", scope="scope", order_by="id", at_once=400)


class WaitingWriter(Writer):
    """One process: writes rows, and assigns the numbers of a scope or of all; may kill itself before each statement."""

    table = waited

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.waiting = waiting()
        event.listen(self.engine, "before_cursor_execute", self.before_a_statement)
        event.listen(self.engine, "commit", self.before_a_statement)

    def before_a_statement(self, *_: object) -> None:
        if self.progress.step and self.rnd.random() < self.odds:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, connection: Connection) -> None:
        scope, count = f"scope-{self.rnd.randrange(self.scopes)}", self.rnd.choice(BATCHES)
        self.progress.step = 2
        connection.execute(insert(waited), [{"scope": scope}] * count)
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
        found = connection.scalar(select(func.count()).where(waited.c.n.is_(None)))
    engine.dispose()
    return int(found or 0)
