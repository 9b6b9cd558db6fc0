"""Numbers without gaps for transactions of some length, in one scope: drawn in them, or assigned after their commit.

Every fifth transaction is rolled back. The first way writes the same rows and never numbers them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    insert,
    select,
    text,
)

from allocator import Numbers
from allocator.errors import NumberConflict

from .places import RUN, Place
from .rounds import Measure, Race

HOLDS = (5, 50)
"""Milliseconds of work in a transaction, after it has drawn its number."""
WRITERS = (1, 8, 32)
SECONDS = 2.0
PAUSE = 0.005
"""Seconds between two calls of `assign` by a timer."""
ROLLED_BACK = 5

rows = Table(
    f"allocator_bench_{RUN}_waiting",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("way", String(40), nullable=False),
    Column("n", BigInteger),
    UniqueConstraint("way", "n"),
)
keys = itertools.count(1)
clock = time.perf_counter


class Way:
    """Commits per second of some writers; `taken` are the microseconds from a commit to its number."""

    def __init__(
        self, engine: Engine, pool: ThreadPoolExecutor, numbers: Numbers, name: str, writers: int, hold: int
    ) -> None:
        self.engine, self.pool, self.numbers, self.writers, self.hold = engine, pool, numbers, writers, hold / 1000
        self.way = f"{name}.{writers}.{hold}"
        self.waiting = numbers.waiting(rows, number=rows.c.n, scope=rows.c.way, order_by=rows.c.id)
        self.taken: list[float] = []

    def __call__(self) -> float:
        ready, stop = threading.Barrier(self.writers), threading.Event()

        def write(_: int) -> tuple[int, float]:
            self.book()
            ready.wait()
            began, done = clock(), 0
            while clock() < began + SECONDS:
                done += self.book()
            return done, clock() - began

        with self.beside(stop):
            counts, seconds = zip(*self.pool.map(write, range(self.writers)), strict=True)
        return float(sum(counts) / max(seconds))

    def book(self) -> bool:
        """One transaction. Returns whether it was committed."""
        key = next(keys)
        with self.engine.connect() as connection:
            try:
                n = self.draw(connection)
            except NumberConflict:  # the first numbers of a scope, all at once
                return False
            time.sleep(self.hold)
            connection.execute(insert(rows).values(id=key, way=self.way, n=n))
            if key % ROLLED_BACK == 0:
                connection.rollback()
                return False
            connection.commit()
        self.committed(key)
        return True

    def draw(self, connection: Connection) -> int | None:
        return None

    def committed(self, key: int) -> None:
        pass

    def beside(self, stop: threading.Event) -> Any:
        return nullcontext()


class Drawn(Way):
    def draw(self, connection: Connection) -> int | None:
        return self.numbers.next(connection, self.way).n


class AfterEach(Way):
    """Each writer calls `assign` after its own commit."""

    def committed(self, key: int) -> None:
        began = clock()
        self.waiting.assign(self.engine, self.way)
        self.taken.append((clock() - began) * 1e6)


class ByTimer(Way):
    """One thread calls `assign` again and again. It then looks up which rows have a number now."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.at: dict[int, float] = {}
        self.last = 0

    def committed(self, key: int) -> None:
        self.at[key] = clock()

    @contextmanager
    def beside(self, stop: threading.Event) -> Iterator[None]:
        def assign() -> None:
            while not stop.wait(PAUSE):
                self.assign()
            self.assign()

        thread = threading.Thread(target=assign)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def assign(self) -> None:
        if not self.waiting.assign(self.engine, self.way):
            return
        now = clock()
        numbered = select(rows.c.id, rows.c.n).where(rows.c.way == self.way, rows.c.n > self.last).order_by(rows.c.n)
        with self.engine.connect() as connection:
            found = connection.execute(numbered).all()
        self.last = found[-1].n
        self.taken += [max(0.0, now - self.at.pop(row.id, now)) * 1e6 for row in found]


WAYS = {"no numbers": Way, "drawn in the transaction": Drawn, "after each commit": AfterEach, "by a timer": ByTimer}


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    """A race for each length of the transactions and number of writers."""
    numbers = Numbers(place.tag("waiting"))
    with ExitStack() as stack:
        engine = create_engine(place.url, pool_size=max(WRITERS) + 1)
        stack.callback(engine.dispose)
        pool = stack.enter_context(ThreadPoolExecutor(max(WRITERS)))
        rows.create(engine)
        stack.callback(leave, engine, numbers)
        found = []
        for hold, writers in itertools.product(HOLDS, WRITERS):
            ways: dict[str, Measure] = {
                name: way(engine, pool, numbers, name.split()[0], writers, hold) for name, way in WAYS.items()
            }
            found.append(Race(f"waiting, {place.name}, {hold} ms, {writers} writers", "commits/s", ways, judged=False))
        yield found


def leave(engine: Engine, numbers: Numbers) -> None:
    rows.drop(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM allocator_number WHERE name = :name"), {"name": numbers.rule.name})
