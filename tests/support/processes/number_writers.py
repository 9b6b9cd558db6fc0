"""Processes that draw numbers without gaps and write a row for each, roll back at random, and are killed.

The check reads rows and counters by SQL and shares no code with the library.
"""

import os
import random
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, create_engine, insert, text
from sqlalchemy.exc import DBAPIError

from allocator import Numbers
from allocator.errors import DatabaseUnavailable, NumberConflict
from support.processes.crew import Crew
from support.servers.administrator import opened

rows = Table("numbered", MetaData(), Column("scope", String(64)), Column("n", BigInteger))
"""Without a key: a duplicate would be written, and found."""

STEPS = ("connecting", "drawing", "inserting", "ending", "ended")
"""Steps of a process; it may kill itself before each."""
SCOPES, ROLLED_BACK = 3, 0.2
COUNTS = (1, 1, 1, 9)
"""How many numbers a transaction draws."""
PAUSE = 0.05
"""Seconds between attempts to connect to a server that was killed."""


def options(url: str) -> dict[str, Any]:
    """More than SQLite's 5 seconds: writers overtake whoever waits."""
    return {"connect_args": {"timeout": 60} if url.startswith("sqlite") else {}}


numbers = Numbers("soak")
Way = Callable[[Engine, Connection, str, int], list[int]]
"""How numbers of a scope are drawn."""


def drawn(engine: Engine, connection: Connection, scope: str, count: int) -> list[int]:
    """As the library says."""
    return [number.n for number in numbers.next(connection, scope, count=count)]


def drawn_on_its_own(engine: Engine, connection: Connection, scope: str, count: int) -> list[int]:
    """A control: on another connection, and committed before the row is written."""
    with engine.begin() as own:
        return drawn(engine, own, scope, count)


def read_first(engine: Engine, connection: Connection, scope: str, count: int) -> list[int]:
    """A control: reads the greatest number in the table and adds one."""
    greatest = connection.scalar(text("SELECT max(n) FROM numbered WHERE scope = :scope"), {"scope": scope}) or 0
    return list(range(greatest + 1, greatest + 1 + count))


PROGRESS = struct.Struct("=qq")
"""The notes of a writer, its step and how many numbers it has written: a question to SQLite would wait for others."""


def progress_of(notes: Path) -> tuple[int, int]:
    found = notes.read_bytes() if notes.exists() else b""
    return PROGRESS.unpack(found) if found else (0, 0)


class Writer:
    """One process: runs transactions, each with its numbers and their rows, until it is killed.

    odds: that it kills itself, at each step.
    """

    def __init__(self, notes: Path, number: int, url: str, way: Way, odds: float) -> None:
        self.rnd, self.odds = random.Random(number), odds
        self.written = 0
        self.notes = os.open(notes, os.O_WRONLY | os.O_CREAT)
        self.engine = create_engine(url, **options(url))
        self.way = way

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
        scope = f"scope-{self.rnd.randrange(SCOPES)}"
        self.at(1)
        try:
            found = self.way(self.engine, connection, scope, self.rnd.choice(COUNTS))
        except NumberConflict:
            connection.rollback()
            return
        self.at(2)
        connection.execute(insert(rows), [{"scope": scope, "n": n} for n in found])
        self.at(3)
        if self.rnd.random() < ROLLED_BACK:
            connection.rollback()
        else:
            connection.commit()
            self.written += len(found)
        self.at(4)

    def at(self, step: int) -> None:
        if step:
            os.pwrite(self.notes, PROGRESS.pack(step, self.written), 0)
        if self.rnd.random() < self.odds:
            os.kill(os.getpid(), signal.SIGKILL)


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or could not be made: the server was killed."""
    found = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
    return isinstance(found, DBAPIError) and (found.connection_invalidated or found.statement is None)


def write(*words: Any) -> NoReturn:
    """The work of a crew."""
    Writer(*words).run()


class Writers(Crew):
    """Keeps `count` writers running, on tables that were emptied.

    steps: of those that were killed, how many at each. written: how many numbers, at least.
    """

    def __init__(self, url: str, folder: Path, *, count: int, odds: float = 0.0, way: Way = drawn) -> None:
        with opened(url, **options(url)) as engine, engine.begin() as connection:
            rows.drop(connection, checkfirst=True)
            rows.create(connection)
            connection.execute(text("DELETE FROM allocator_number"))
        self.steps = Counter[str]()
        super().__init__(write, folder, url, way, odds, count=count, begun=1)

    def replace(self, at: int) -> None:
        assert self.running[at].process.exitcode == -signal.SIGKILL, self.errors()
        step, _ = progress_of(self.running[at].notes)
        self.steps[STEPS[step]] += 1
        super().replace(at)

    @property
    def written(self) -> int:
        return sum(progress_of(path)[1] for path in self.folder.glob("notes-*"))


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
SELECT scope, n, 1 AS is_row FROM numbered UNION ALL SELECT scope, n, 0 FROM allocator_number
"""
"""One statement, so that rows and counters are of one moment: the commit of a killed client may still be on its way."""


def check(url: str) -> Found:
    numbers, counters = defaultdict[str, list[int]](list), Counter[str]()
    with opened(url, **options(url)) as engine, engine.connect() as connection:
        for scope, n, is_row in connection.execute(text(CHECK)):
            if is_row:
                numbers[scope].append(n)
            else:
                counters[scope] = n
    assert all(min(found) >= 1 for found in numbers.values())
    gaps = duplicates = ahead = 0
    for scope in {*numbers, *counters}:
        greatest, different = max(numbers[scope], default=0), len(set(numbers[scope]))
        gaps += max(greatest, counters[scope]) - different
        duplicates += len(numbers[scope]) - different
        ahead += max(0, greatest - counters[scope])
    return Found(sum(map(len, numbers.values())), gaps, duplicates, ahead)
