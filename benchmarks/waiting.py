"""Numbers without gaps for transactions of some length: drawn in them, or assigned after their commit.

Every fifth transaction is rolled back. The first way writes the same rows and never numbers them. A last race starts
transactions at half of the rate at which the machine is full, and tells how long a committed row waits for its number.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
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

from .django_sequences import has_django, open_django
from .places import RUN, Place
from .rounds import Measure, Race

HOLDS = (5, 50, 500)
"""Milliseconds of work in a transaction, after it has drawn its number."""
WRITERS = (1, 8, 32, 128)
SCOPES = (1, 50)
QUICK = ((5, 50), (1, 8, 32), (1,))
"""The same, for a quick run."""
SECONDS, LENGTHS = 1.0, 4
"""A sample takes so many seconds, and so many lengths of a transaction at least."""
PAUSE = 0.005
"""Seconds between two calls of `assign` by a timer."""
ROLLED_BACK = 5
LONGEST_QUEUE = 10.0
"""Seconds of all writers of a scope, one after the other: a longer one is not measured, as MySQL would end it."""
HALF, FULL = 0.5, 32
"""Of the rate at which the machine is full: of so many writers without numbers, whose transactions take 5 ms."""

keys = itertools.count(1)
clock = time.perf_counter


@dataclass(frozen=True)
class Ground:
    """What all ways of a place share. counters: the table of a counter by hand."""

    engine: Engine
    pool: ThreadPoolExecutor
    numbers: Numbers
    tables: MetaData
    counters: Table

    def table(self) -> Table:
        """A table for the rows of one way: those of another one would wait beside them."""
        made = Table(
            f"allocator_bench_{RUN}_{next(keys)}",
            self.tables,
            Column("id", BigInteger, primary_key=True, autoincrement=False),
            Column("scope", String(40), nullable=False),
            Column("n", BigInteger),
            UniqueConstraint("n", "scope"),
        )
        made.create(self.engine)
        return made


class Way:
    """Commits per second of some writers; `taken` are the microseconds from a commit to its number.

    hold: milliseconds of a transaction. rate: at which transactions are begun; None for one after the other.
    """

    queues = False
    """Whether the writers of a scope wait for each other."""

    def __init__(self, on: Ground, name: str, hold: int, writers: int, scopes: int, rate: float | None = None) -> None:
        self.on, self.writers, self.hold, self.scopes, self.rate = on, writers, hold / 1000, scopes, rate
        self.name = f"{name.split(maxsplit=1)[0]}.{writers}.{hold}.{scopes}.{rate is None}"
        self.rows = on.table()
        self.waiting = on.numbers.waiting(self.rows, number="n", scope="scope", order_by="id")
        self.taken: list[float] = []
        self.seconds = max(SECONDS, LENGTHS * self.hold)

    def __call__(self) -> float:
        ready, stop = threading.Barrier(self.writers), threading.Event()

        def write(number: int) -> tuple[int, float]:
            ready.wait()
            began, done = clock(), 0
            for turn in itertools.count():
                if self.rate:
                    begin = began + (turn * self.writers + number) / self.rate
                    time.sleep(max(0.0, begin - clock()))
                if clock() >= began + self.seconds:
                    return done, clock() - began
                done += self.book()
            raise AssertionError

        with self.beside(stop):
            counts, seconds = zip(*self.on.pool.map(write, range(self.writers)), strict=True)
        return float(sum(counts) / max(seconds))

    def book(self) -> bool:
        """One transaction. Returns whether it was committed."""
        key = next(keys)
        scope = f"{self.name}.{key % self.scopes}"
        with suppress(NumberConflict), self.on.engine.connect() as connection:  # the first numbers, all at once
            row = {"id": key, "scope": scope, "n": self.draw(connection, scope)}
            time.sleep(self.hold)
            connection.execute(insert(self.rows), row)
            if key % ROLLED_BACK == 0:
                connection.rollback()
                return False
            connection.commit()
            self.committed(key)
            return True
        return False

    def draw(self, connection: Connection, scope: str) -> int | None:
        return None

    def committed(self, key: int) -> None:
        pass

    def beside(self, stop: threading.Event) -> Any:
        return nullcontext()


class Drawn(Way):
    queues = True

    def draw(self, connection: Connection, scope: str) -> int | None:
        return self.on.numbers.next(connection, scope).n


class ByHand(Way):
    """The counter that people write."""

    queues = True

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        with self.on.engine.begin() as connection:
            scopes = [{"scope": f"{self.name}.{number}", "n": 0} for number in range(self.scopes)]
            connection.execute(insert(self.on.counters), scopes)

    def draw(self, connection: Connection, scope: str) -> int | None:
        counters = self.on.counters
        mine = counters.c.scope == scope
        n = connection.execute(select(counters.c.n).where(mine).with_for_update()).scalar_one() + 1
        connection.execute(counters.update().where(mine).values(n=n))
        return int(n)


class OfDjango(Way):
    """The same transactions on Django's connections, with numbers of django-sequences."""

    queues = True

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.database: Any = importlib.import_module("django.db")
        self.sequences: Any = importlib.import_module("sequences")

    def book(self) -> bool:
        key, transaction, is_written = next(keys), self.database.transaction, False
        scope = f"{self.name}.{key % self.scopes}"
        with suppress(self.database.OperationalError), transaction.atomic():  # MySQL: the first numbers, all at once
            n = self.sequences.get_next_value(scope)
            time.sleep(self.hold)
            with self.database.connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {self.rows.name} VALUES (%s, %s, %s)", (key, scope, n))
            if key % ROLLED_BACK == 0:
                transaction.set_rollback(True)
            is_written = key % ROLLED_BACK != 0
        return is_written


class AfterEach(Way):
    """Each writer calls `assign` after its own commit."""

    def committed(self, key: int) -> None:
        began = clock()
        self.waiting.assign(self.on.engine, f"{self.name}.{key % self.scopes}")
        self.taken.append((clock() - began) * 1e6)


class ByTimer(Way):
    """One thread calls `assign` again and again. It then looks up which rows have a number now."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.at: dict[int, float] = {}

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
        if not self.waiting.assign(self.on.engine):
            return
        now, waited = clock(), dict(self.at)
        numbered = select(self.rows.c.id).where(self.rows.c.n.is_not(None), self.rows.c.id >= min(waited, default=0))
        with self.on.engine.connect() as connection:
            found = connection.execute(numbered).scalars().all()
        self.taken += [max(0.0, now - waited[key]) * 1e6 for key in found if self.at.pop(key, None) and key in waited]


WAYS: dict[str, type[Way]] = {
    "no numbers": Way,
    "drawn in the transaction": Drawn,
    "a counter by hand": ByHand,
    "django-sequences": OfDjango,
    "after each commit": AfterEach,
    "by a timer": ByTimer,
}


@contextmanager
def races(place: Place, quick: bool) -> Iterator[list[Race]]:
    """A race for each length of the transactions, number of writers and of scopes; and one at half of the full rate."""
    holds, writers_of, scopes_of = QUICK if quick else (HOLDS, WRITERS, SCOPES)
    with opened(place, max(*writers_of, FULL)) as on:
        ways = WAYS if has_django() else {name: way for name, way in WAYS.items() if way is not OfDjango}
        found = []
        for cell in itertools.product(holds, writers_of, scopes_of):
            hold, writers, scopes = cell
            if writers < scopes / 10:  # who meet nobody
                continue
            is_long = writers / scopes * hold / 1000 > LONGEST_QUEUE
            timed: dict[str, Measure] = {
                name: way(on, name, *cell) for name, way in ways.items() if not (way.queues and is_long)
            }
            found.append(Race(f"waiting, {place.name}, {told(*cell)}", "commits/s", timed, judged=False))
        full = Way(on, "full", 5, FULL, 1)()
        after = {name: way for name, way in WAYS.items() if way in (Way, AfterEach, ByTimer)}
        timed = {name: way(on, f"{name} half", 5, FULL, 1, HALF * full) for name, way in after.items()}
        found.append(Race(f"waiting, {place.name}, half of {full:.0f}/s", "commits/s", timed, judged=False))
        yield found


def counted(writers: int) -> str:
    return f"{writers} writer{'s' * (writers > 1)}"


def told(hold: int, writers: int, scopes: int) -> str:
    return f"{hold} ms, {counted(writers)}" + (f", {scopes} scopes" if scopes > 1 else "")


@contextmanager
def opened(place: Place, most: int) -> Iterator[Ground]:
    """The tables, which are gone at the end, and what ours counted; for so many writers."""
    with ExitStack() as stack:
        engine = create_engine(place.url, pool_size=most + 1)
        stack.callback(engine.dispose)
        pool = stack.enter_context(ThreadPoolExecutor(most))
        numbers, tables = Numbers(place.tag("waiting")), MetaData()
        stack.callback(leave, engine, numbers, tables)
        counters = Table(
            f"allocator_bench_{RUN}_counters",
            tables,
            Column("scope", String(40), primary_key=True),
            Column("n", BigInteger, nullable=False),
        )
        counters.create(engine)
        if has_django():
            open_django(stack, place, pool, most)
        list(pool.map(connect, [engine] * most, [threading.Barrier(most)] * most))
        yield Ground(engine, pool, numbers, tables, counters)


def connect(engine: Engine, together: threading.Barrier) -> None:
    """Each thread, so that no sample opens connections."""
    try:
        with engine.connect():
            if has_django():
                importlib.import_module("django.db").connection.ensure_connection()
            together.wait()
    except BaseException:
        together.abort()
        raise


def leave(engine: Engine, numbers: Numbers, tables: MetaData) -> None:
    tables.drop_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM allocator_number WHERE name = :name"), {"name": numbers.rule.name})
