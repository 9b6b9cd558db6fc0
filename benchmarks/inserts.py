"""Inserts by SQLAlchemy with our default, with explicit ids, and with ids from the database.

Wall-clock milliseconds for 10,000 rows, up to the commit. Where the database may have to return keys one by one, a
tenth of the rows stands for all: it takes so long that their commit counts for nothing. "by hand" has its ids before
the clock starts. Ours are drawn and claimed while it runs.
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

from allocator import Allocator
from allocator.integrations.sqlalchemy import KeyDefault

from .places import RUN, Place
from .rounds import Measure, Race

ROWS = 10_000
SHARE = 10
"""Where the database makes the keys of objects or single rows, a tenth of them is written."""
WARM = 3

Row = dict[str, Any]
Write = Callable[[Engine, Table, list[Row]], None]


def at_once(engine: Engine, table: Table, rows: list[Row]) -> None:
    with engine.begin() as connection:
        connection.execute(insert(table), rows)


def one_by_one(engine: Engine, table: Table, rows: list[Row]) -> None:
    """Insert in one transaction; the id of each row is known after its INSERT."""
    with engine.begin() as connection:
        for row in rows:
            assert connection.execute(insert(table).values(row)).inserted_primary_key


def flush(engine: Engine, table: Table, rows: list[Row]) -> None:
    """Insert as objects, including the time to create them."""
    model = table.info["model"]
    with Session(engine) as session:
        session.add_all([model(**row) for row in rows])
        session.commit()


def counting(numbers: Iterator[int]) -> Callable[[object], int]:
    """The cheapest default: measures what SQLAlchemy takes to call one."""

    def default(_: object) -> int:
        return next(numbers)

    return default


class Tables:
    """One table per candidate, dropped at the end of the run."""

    def __init__(self, engine: Engine, ids: Allocator, place: Place) -> None:
        self.engine = engine
        self.metadata = MetaData()
        self.registry = registry()
        self.by_hand = {name: self.table(f"{name}_hand", autoincrement=False) for name in ("core", "orm")}
        self.by_us = {
            name: self.table(f"{name}_ours", default=KeyDefault(ids, place.tag(name)).of_row, autoincrement=False)
            for name in ("core", "orm")
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

    def timed(self, write: Write, table: Table, numbers: Iterator[int] | None = None, share: int = 1) -> Measure:
        """Milliseconds for all rows, of which every `share`-th is written."""

        def measure() -> float:
            rows: list[Row] = [{"name": f"row {number}", "amount": number} for number in range(ROWS // share)]
            if numbers is not None:
                rows = [{"id": next(numbers), **row} for row in rows]
            began = time.perf_counter()
            write(self.engine, table, rows)
            taken = time.perf_counter() - began
            self.empty(table)
            return taken * share * 1000

        return measure

    def empty(self, table: Table) -> None:
        """Empty the table. On PostgreSQL, deleted rows slow down inserts until a vacuum."""
        with self.engine.begin() as connection:
            is_file = self.engine.dialect.name == "sqlite"
            connection.execute(delete(table) if is_file else text(f"TRUNCATE TABLE {table.name}"))

    def drop(self) -> None:
        self.metadata.drop_all(self.engine)
        self.registry.dispose()


@contextmanager
def rows_of(place: Place) -> Iterator[Engine]:
    """The engine for the rows: the server of the ids, or a separate file for SQLite, which has one writer per file."""
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
            "the database's own, one by one": tables.timed(one_by_one, tables.by_database["single"], share=SHARE),
        }
        orm: dict[str, Measure] = {
            "objects by hand": tables.timed(flush, tables.by_hand["orm"], count(1)),
            "objects, our default": tables.timed(flush, tables.by_us["orm"]),
            "objects, the database's own": tables.timed(flush, tables.by_database["orm"], share=SHARE),
        }
        for warm in ("by hand", "our default"):  # compiles the statements and grows the segment
            for _ in range(WARM):
                core[warm]()
        yield [Race(f"insert, {place.name}", "ms", core), Race(f"insert, {place.name}, objects", "ms", orm)]
