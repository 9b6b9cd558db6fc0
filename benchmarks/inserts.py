"""Rows by SQLAlchemy and by COPY, by who makes the ids.

Milliseconds for 10,000 rows, up to the commit. Where the database may have to return keys one by one, a tenth of the
rows stands for all: it takes so long that their commit counts for nothing. COPY writes ten times as many. "by hand" has
its ids before the clock starts. All others are made while it runs.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Engine, Integer, Table
from sqlalchemy.orm import Session, registry

from allocator import Allocator
from allocator.integrations.sqlalchemy import KeyDefault

from .places import RUN, Place
from .rounds import Figure, Measure, Race

ROWS = 10_000
OWN, ONE_BY_ONE = "the database's own", "the database's own, one by one"
FIGURES = (
    Figure("10,000 rows with our default to ids by hand", "our default", "by hand", "≤ 1.1"),
    Figure("10,000 rows numbered by the database one by one, to our default", ONE_BY_ONE, "our default", "≥ 3"),
    Figure("10,000 rows numbered by the database at once, to our default", OWN, "our default", ""),
)
OBJECTS = (
    Figure("10,000 objects with our default to keys by hand", "objects, our default", "objects by hand", "≤ 1.1"),
)
BY_COPY = (
    Figure("10,000 rows by COPY, BIGSERIAL to ids.reserve", "BIGSERIAL", "ids.reserve", ""),
    Figure("10,000 rows by COPY, UUIDv7 to ids.reserve", "UUIDv7", "ids.reserve", ""),
)

Row = dict[str, Any]
Write = Callable[[Engine, Table, list[Row]], None]


def at_once(engine: Engine, table: Table, rows: list[Row]) -> None:
    with engine.begin() as connection:
        connection.execute(sa.insert(table), rows)


def one_by_one(engine: Engine, table: Table, rows: list[Row]) -> None:
    """Insert in one transaction; the id of each row is known after its INSERT."""
    with engine.begin() as connection:
        for row in rows:
            assert connection.execute(sa.insert(table).values(row)).inserted_primary_key


def copy(engine: Engine, table: Table, rows: list[Row]) -> None:
    """COPY of PostgreSQL."""
    with engine.begin() as connection:
        driver: Any = connection.connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({', '.join(rows[0])}) FROM STDIN") as stream:
            for row in rows:
                stream.write_row(tuple(row.values()))


def flush(engine: Engine, table: Table, rows: list[Row]) -> None:
    """Insert as objects, including the time to create them."""
    model = table.info["model"]
    with Session(engine) as session:
        session.add_all([model(**row) for row in rows])
        session.commit()


class Tables:
    """One table per candidate, on the server of the ids; for SQLite in a file of its own, which has one writer."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.place = place
        self.ids = stack.enter_context(Allocator(place.url, timeout=60))
        self.engine = sa.create_engine(f"sqlite:///{folder}/rows.db" if place.kind == "sqlite" else place.url)
        stack.callback(self.engine.dispose)
        self.metadata, self.registry = sa.MetaData(), registry()
        stack.callback(self.registry.dispose)
        stack.callback(self.metadata.drop_all, self.engine)

    def table(self, *kind: Any, **options: Any) -> Table:
        table = Table(
            f"allocator_bench_{RUN}_rows{len(self.metadata.tables)}",
            self.metadata,
            Column("id", *(kind or [sa.BigInteger().with_variant(Integer, "sqlite")]), primary_key=True, **options),
            Column("name", sa.String(40), nullable=False),
            Column("amount", Integer, nullable=False),
        )
        table.info["model"] = type(f"Row{len(self.metadata.tables)}", (), {})
        self.registry.map_imperatively(table.info["model"], table)
        return table

    def plain(self) -> Table:
        return self.table(autoincrement=False)

    def ours(self) -> Table:
        tag = self.place.tag(f"rows{len(self.metadata.tables)}")
        return self.table(default=KeyDefault(self.ids, tag).of_row, autoincrement=False)

    def reserved(self, count: int) -> Iterable[int]:
        return self.ids.reserve(self.place.tag("reserved"), count)

    def timed(
        self,
        write: Write,
        table: Table,
        ids: Callable[[int], Iterable[object]] = lambda _: (),
        count: int | None = None,
    ) -> Measure:
        """Milliseconds for 10,000 rows, of which `count` are written. `ids`: makes their ids, if not the table."""
        count = count or ROWS

        def measure() -> float:
            rows: list[Row] = [{"name": f"row {number}", "amount": number} for number in range(count)]
            table.drop(self.engine, checkfirst=True)  # deleted rows would slow down PostgreSQL
            table.create(self.engine)
            began = time.perf_counter()
            for row, id_ in zip(rows, ids(count), strict=False):
                row["id"] = id_
            write(self.engine, table, rows)
            return (time.perf_counter() - began) * ROWS / count * 1000

        return measure


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    with ExitStack() as stack:
        tables = Tables(place, stack)
        by_hand = range(1, ROWS + 1)
        core: dict[str, Measure] = {
            "by hand": tables.timed(at_once, tables.plain(), lambda _: by_hand),
            "our default": tables.timed(at_once, tables.ours()),
            OWN: tables.timed(at_once, tables.table()),
            ONE_BY_ONE: tables.timed(one_by_one, tables.table(), count=ROWS // 10),
        }
        orm: dict[str, Measure] = {
            "objects by hand": tables.timed(flush, tables.plain(), lambda _: by_hand),
            "objects, our default": tables.timed(flush, tables.ours()),
            "objects, the database's own": tables.timed(flush, tables.table(), count=ROWS // 10),
        }
        found = [
            Race("insert", "ms", core, FIGURES, place.name),
            Race("insert, objects", "ms", orm, OBJECTS, place.name),
        ]
        if place.kind == "postgresql":
            bulk = {
                "ids.reserve": tables.timed(copy, tables.plain(), tables.reserved, ROWS * 10),
                "BIGSERIAL": tables.timed(copy, tables.table(), count=ROWS * 10),
            }
            with suppress(ImportError):
                uuid7 = importlib.import_module("uuid_utils.compat").uuid7
                bulk["UUIDv7"] = tables.timed(copy, tables.table(sa.Uuid), lambda _: iter(uuid7, None), ROWS * 10)
            found.append(Race("insert, COPY", "ms", bulk, BY_COPY, place.name))
        yield found
