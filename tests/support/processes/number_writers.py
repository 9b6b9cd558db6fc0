"""Processes that draw numbers without gaps and write a row for each, roll back at random, and are killed.

The check reads rows and counters by SQL and shares no code with the library.
"""

import random
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


def write(notes: Path, number: int, url: str, way: Way) -> NoReturn:
    """The work of a crew: transactions, each with its numbers and their rows.

    A byte is noted for each number that was written: a question to SQLite would wait for others.
    """
    rnd, engine = random.Random(number), create_engine(url, **options(url))
    with notes.open("ab", buffering=0) as written:
        while True:
            try:
                with engine.connect() as connection:
                    while True:
                        written.write(b"." * transacted(engine, connection, rnd, way))
            except (DBAPIError, DatabaseUnavailable) as error:
                if not is_lost(error):
                    raise
                time.sleep(PAUSE)


def transacted(engine: Engine, connection: Connection, rnd: random.Random, way: Way) -> int:
    """How many numbers one transaction has written."""
    scope = f"scope-{rnd.randrange(SCOPES)}"
    try:
        found = way(engine, connection, scope, rnd.choice(COUNTS))
    except NumberConflict:
        connection.rollback()
        return 0
    connection.execute(insert(rows), [{"scope": scope, "n": n} for n in found])
    if rnd.random() < ROLLED_BACK:
        connection.rollback()
        return 0
    connection.commit()
    return len(found)


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or could not be made: the server was killed."""
    found = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
    return isinstance(found, DBAPIError) and (found.connection_invalidated or found.statement is None)


class Writers(Crew):
    """Keeps `count` writers running, on tables that were emptied."""

    def __init__(self, url: str, folder: Path, *, count: int, way: Way = drawn, seed: int = 0) -> None:
        with opened(url, **options(url)) as engine, engine.begin() as connection:
            rows.drop(connection, checkfirst=True)
            rows.create(connection)
            connection.execute(text("DELETE FROM allocator_number"))
        super().__init__(write, folder, url, way, count=count, begun=1, seed=seed)

    @property
    def written(self) -> int:
        """How many numbers, at least."""
        return sum(path.stat().st_size for path in self.folder.glob("notes-*"))


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
