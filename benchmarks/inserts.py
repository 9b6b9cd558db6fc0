"""Rows that SQLAlchemy inserts: with our default, with ids by hand, and with those that the database gives.

Milliseconds by the clock for 10,000 rows, from the first word to the commit. "by hand" has its ids before the clock
starts; what we draw, and claim, is drawn while it runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, create_engine, delete, insert, text
from sqlalchemy.orm import Session, registry

import allocator.integrations.sqlalchemy  # noqa: F401  # objects have their keys before a flush
from allocator import Allocator

from .places import RUN, Place
from .rounds import Measure, Race

ROWS = 10_000
WARM = 3

Row = dict[str, Any]
Write = Callable[[Engine, Table, list[Row]], None]


def at_once(engine: Engine, table: Table, rows: list[Row]) -> None:
    with engine.begin() as connection:
        connection.execute(insert(table), rows)


def one_by_one(engine: Engine, table: Table, rows: list[Row]) -> None:
    """In one transaction, and the id of each is known after it."""
    with engine.begin() as connection:
        for row in rows:
            assert connection.execute(insert(table).values(row)).inserted_primary_key


def flush(engine: Engine, table: Table, rows: list[Row]) -> None:
    """As objects, with the time that it takes to make them."""
    model = table.info["model"]
    with Session(engine) as session:
        session.add_all([model(**row) for row in rows])
        session.commit()


def counting(numbers: Iterator[int]) -> Callable[[object], int]:
    """The cheapest default there can be: what is left is what SQLAlchemy takes to call any."""

    def default(_: object) -> int:
        return next(numbers)

    return default


class Tables:
    """One for each candidate, on the place of a run; they are dropped at its end."""

    def __init__(self, engine: Engine, ids: Allocator, place: Place) -> None:
        self.engine = engine
        self.metadata = MetaData()
        self.registry = registry()
        self.by_hand = {name: self.table(f"{name}_hand", autoincrement=False) for name in ("core", "orm")}
        self.by_us = {
            name: self.table(f"{name}_ours", default=ids.sequence(place.tag(name))) for name in ("core", "orm")
        }
        self.by_counter = self.table("counter", default=counting(count(1)))
        self.by_database = {name: self.table(f"{name}_own") for name in ("core", "single", "orm")}
        self.metadata.create_all(engine)

    def table(self, name: str, **options: Any) -> Table:
        number = BigInteger().with_variant(Integer, "sqlite")
        table = Table(
            f"allocator_bench_{RUN}_{name}",
            self.metadata,
            Column("id", number, primary_key=True, **options),
            Column("name", String(40), nullable=False),
            Column("amount", Integer, nullable=False),
        )
        model = type(name, (), {})
        self.registry.map_imperatively(model, table)
        table.info["model"] = model
        return table

    def timed(self, write: Write, table: Table, numbers: Iterator[int] | None = None) -> Measure:
        def measure() -> float:
            rows: list[Row] = [{"name": f"row {number}", "amount": number} for number in range(ROWS)]
            if numbers is not None:
                rows = [{"id": next(numbers), **row} for row in rows]
            began = time.perf_counter()
            write(self.engine, table, rows)
            taken = time.perf_counter() - began
            self.empty(table)
            return taken * 1000

        return measure

    def empty(self, table: Table) -> None:
        """Of PostgreSQL, rows that were deleted slow down those that come, until they are vacuumed."""
        with self.engine.begin() as connection:
            is_file = self.engine.dialect.name == "sqlite"
            connection.execute(delete(table) if is_file else text(f"TRUNCATE TABLE {table.name}"))

    def drop(self) -> None:
        self.metadata.drop_all(self.engine)
        self.registry.dispose()


@contextmanager
def rows_of(place: Place) -> Iterator[Engine]:
    """Where the rows go: beside the ids on a server, into a file of their own where a file has one writer."""
    with tempfile.TemporaryDirectory() as folder:
        own = f"sqlite:///{Path(folder) / 'rows.db'}"
        engine = create_engine(own if place.backend == "sqlite" else place.url)
        yield engine
        engine.dispose()


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    with ExitStack() as stack:
        engine = stack.enter_context(rows_of(place))
        ids = stack.enter_context(Allocator(place.url, timeout=60))
        tables = Tables(engine, ids, place)
        stack.callback(tables.drop)
        core: dict[str, Measure] = {
            "by hand": tables.timed(at_once, tables.by_hand["core"], count(1)),
            "our default": tables.timed(at_once, tables.by_us["core"]),
            "any default: a counter": tables.timed(at_once, tables.by_counter),
            "the database's own": tables.timed(at_once, tables.by_database["core"]),
            "the database's own, one by one": tables.timed(one_by_one, tables.by_database["single"]),
        }
        orm: dict[str, Measure] = {
            "objects by hand": tables.timed(flush, tables.by_hand["orm"], count(1)),
            "objects, our default": tables.timed(flush, tables.by_us["orm"]),
            "objects, the database's own": tables.timed(flush, tables.by_database["orm"]),
        }
        for warm in ("by hand", "our default"):  # SQLAlchemy has compiled, and a segment is as large as this needs
            for _ in range(WARM):
                core[warm]()
        yield [Race(f"insert, {place.name}", "ms", core), Race(f"insert, {place.name}, objects", "ms", orm)]
