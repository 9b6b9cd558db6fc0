"""Readers that poll while writers commit late: by native keys and by ours they miss rows, by a feed none.

Writers, and the assigners of the feed, are killed. ALLOCATOR_TEST_FEED=60 writes for so many seconds.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, create_engine, func, insert, select
from support.processes.crew import Crew
from support.processes.patience import until

from allocator import Allocator
from allocator.numbers import Feed

SECONDS = float(os.environ.get("ALLOCATOR_TEST_FEED", "20"))
LATE = 0.02
"""A transaction ends within this many seconds after its INSERT."""
PROBES = 30

rows = Table(
    "happened",
    MetaData(),
    Column("native", BigInteger, primary_key=True),
    Column("ours", BigInteger, unique=True),
    Column("position", BigInteger, unique=True),
)
feed = Feed(rows, position="position", order_by="native")


def write(notes: Path, number: int, url: str) -> NoReturn:
    rnd, engine = random.Random(number), create_engine(url)
    with Allocator(url) as ids:
        while True:
            with engine.begin() as connection:
                connection.execute(insert(rows).values(ours=ids.next_id("happened")))
                time.sleep(rnd.uniform(0.0, LATE))


def assign(notes: Path, number: int, url: str) -> None:
    feed.follow(create_engine(url), every=0.01)


class Readers(threading.Thread):
    """Poll columns, and remember the keys that each found."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine, self.stop = engine, threading.Event()
        self.found: dict[str, list[int]] = {column: [] for column in ("native", "ours", "position")}
        self.last = dict.fromkeys(self.found, 0)

    def run(self) -> None:
        while not self.stop.wait(0.005):
            self.read()

    def read(self) -> None:
        for name, found in self.found.items():
            key, column = rows.c.native, rows.c[name]
            with self.engine.connect() as connection:
                new = connection.execute(select(key, column).where(column > self.last[name]).order_by(column)).all()
            found += [key for key, _ in new]
            self.last[name] = new[-1][1] if new else self.last[name]


@contextmanager
def reading(engine: Engine) -> Iterator[dict[str, list[int]]]:
    readers = Readers(engine)
    readers.start()
    try:
        yield readers.found
    finally:
        readers.stop.set()
        readers.join()
    readers.read()


def probed(engine: Engine) -> float:
    """Seconds from a commit to its position."""
    with engine.begin() as connection:
        (key,) = connection.execute(insert(rows)).inserted_primary_key
    began = time.monotonic()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        position = select(rows.c.position).where(rows.c.native == key)
        assert until(lambda: connection.scalar(position) is not None, 120, every=0.001)
    return time.monotonic() - began


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
def test_a_reader_of_the_feed_misses_no_row_while_writers_and_assigners_die(kind, place, count, tmp_path, report):
    url, _ = place
    engine = create_engine(url, pool_size=20)
    rows.metadata.drop_all(engine)
    rows.metadata.create_all(engine)
    crews = Crew(assign, tmp_path / "assigners", url, count=2), Crew(write, tmp_path / "writers", url, count=count)
    with crews[0] as assigners, crews[1] as writers, reading(engine) as readers:
        warm = [probed(engine)]  # all have begun
        end, waits = time.monotonic() + SECONDS, []
        while time.monotonic() < end:
            waits += [probed(engine) for _ in range(PROBES)]
            writers.kill_one(), assigners.kill_one()
        writers.close()
        waiting = select(func.count()).where(rows.c.position.is_(None))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            assert until(lambda: connection.scalar(waiting) == 0, 120)
    with engine.connect() as connection:
        written, last = connection.execute(select(func.count(), func.max(rows.c.position))).one()
    missed = {column: written - len(found) for column, found in readers.items()}
    report(
        f"{kind}: {written:,} rows of {count} writers, {writers.killed} of whom were killed as {assigners.killed} "
        f"assigners; missed by native ids {missed['native']:,}, by ours {missed['ours'] - len(warm + waits):,}, by the "
        f"feed {missed['position']}; from a commit to its position p50 {1000 * sorted(waits)[len(waits) // 2]:.0f} ms, "
        f"p99 {1000 * sorted(waits)[int(len(waits) * 0.99)]:.0f} ms"
    )

    assert missed["native"] > 0  # the control
    assert missed["position"] == 0
    assert last == written
    assert readers["position"] == list(dict.fromkeys(readers["position"]))
    engine.dispose()
