"""Bulk loads: rows per second into tables that grow, by who makes the ids: we, the database, or UUIDv7.

Every round adds rows to each table, in one transaction, and the ids are made while the clock runs. COPY, which
PostgreSQL alone has, adds 10 million rows in all. INSERT is SQLAlchemy's, of many rows at once, and adds a tenth.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import BINARY, BigInteger, Column, Engine, Identity, Integer, MetaData, Table, Uuid, insert

from allocator import Allocator
from allocator.integrations.sqlalchemy import KeyDefault

from .inserts import rows_of
from .places import RUN, Place
from .rounds import Measure, Race

ROWS, QUICK = 1_000_000, 20_000
"""Rows that COPY adds in a round."""
SHARE = 10
"""INSERT adds every tenth of them."""
BATCH = 10_000
"""Rows of one `execute`."""
OWN = {"postgresql": "BIGSERIAL", "sqlite": "INTEGER PRIMARY KEY"}
CACHED = "identity, CACHE 1000"


class Tables:
    """One table per candidate, dropped at the end of the run."""

    def __init__(self, engine: Engine, ids: Allocator, place: Place) -> None:
        self.engine, self.ids, self.place = engine, ids, place
        self.metadata = MetaData()

    def table(self, *key: Any, **options: Any) -> Table:
        kind = key or (BigInteger().with_variant(Integer, "sqlite"),)
        table = Table(
            f"allocator_bench_{RUN}_bulk{len(self.metadata.tables)}",
            self.metadata,
            Column("id", *kind, primary_key=True, **options),
            Column("amount", Integer, nullable=False),
        )
        table.create(self.engine)
        return table

    def plain(self) -> Table:
        return self.table(autoincrement=False)

    def cached(self) -> Table:
        return self.table(BigInteger, Identity(cache=1000))

    def reserved(self, name: str, count: int) -> range:
        return self.ids.reserve(self.place.tag(name), count)


def rate(count: int, write: Callable[[int], object]) -> Measure:
    """Rows per second."""

    def measure() -> float:
        began = time.perf_counter()
        write(count)
        return count / (time.perf_counter() - began)

    return measure


# -- COPY


def copying(
    engine: Engine, table: Table, rows: Callable[[int], Iterable[tuple[object, ...]]], columns: str = "id, amount"
) -> Callable[[int], None]:
    def write(count: int) -> None:
        with engine.begin() as connection:
            driver: Any = connection.connection
            with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
                for row in rows(count):
                    copy.write_row(row)

    return write


def copies(tables: Tables, uuid7: Callable[[], object] | None) -> dict[str, Callable[[int], None]]:
    def amounts(count: int) -> Iterable[tuple[object, ...]]:
        return ((amount,) for amount in range(count))

    def by_us(count: int) -> Iterable[tuple[object, ...]]:
        return zip(tables.reserved("copy", count), range(count), strict=True)

    engine = tables.engine
    found = {
        "ids.reserve": copying(engine, tables.plain(), by_us),
        OWN["postgresql"]: copying(engine, tables.table(), amounts, "amount"),
        CACHED: copying(engine, tables.cached(), amounts, "amount"),
    }
    if uuid7 is not None:
        make = uuid7
        found["UUIDv7"] = copying(
            engine, tables.table(Uuid), lambda count: zip(iter(make, None), range(count), strict=False)
        )
    return found


# -- INSERT


def unnumbered(part: range) -> Iterator[dict[str, object]]:
    return ({"amount": amount} for amount in part)


def inserting(
    engine: Engine,
    table: Table,
    rows: Callable[[range], Iterable[dict[str, object]]] = unnumbered,
    *,
    returning: bool = False,
) -> Callable[[int], None]:
    statement = insert(table).returning(table.c.id) if returning else insert(table)

    def write(count: int) -> None:
        with engine.begin() as connection:
            for first in range(0, count, BATCH):
                done = connection.execute(statement, list(rows(range(first, min(count, first + BATCH)))))
                if returning:
                    done.all()

    return write


def inserts(tables: Tables, uuid7: Callable[[], Any] | None) -> dict[str, Callable[[int], None]]:
    def by_us(part: range) -> Iterable[dict[str, object]]:
        block = tables.reserved("insert", len(part))
        return ({"id": id_, "amount": amount} for id_, amount in zip(block, part, strict=True))

    engine, backend = tables.engine, tables.place.backend
    own = OWN.get(backend, "AUTO_INCREMENT")

    def defaulting(name: str) -> Table:
        return tables.table(default=KeyDefault(tables.ids, tables.place.tag(name)).of_row, autoincrement=False)

    found = {
        "our default": inserting(engine, defaulting("default")),
        "ids.reserve": inserting(engine, tables.plain(), by_us),
        own: inserting(engine, tables.table()),
    }
    if backend == "postgresql":
        found[CACHED] = inserting(engine, tables.cached())
        found["our default, RETURNING"] = inserting(engine, defaulting("returning"), returning=True)
        found[f"{own}, RETURNING"] = inserting(engine, tables.table(), returning=True)
    if uuid7 is not None:
        make = uuid7
        key, default = (Uuid, make) if backend == "postgresql" else (BINARY(16), lambda: make().bytes)
        found["UUIDv7"] = inserting(engine, tables.table(key, default=default))
    return found


def uuids() -> Callable[[], object] | None:
    try:
        return importlib.import_module("uuid_utils.compat").uuid7  # type: ignore[no-any-return]
    except ImportError:
        return None


@contextmanager
def races(place: Place, quick: bool) -> Iterator[list[Race]]:
    rows = QUICK if quick else ROWS
    with ExitStack() as stack:
        engine = stack.enter_context(rows_of(place))
        ids = stack.enter_context(Allocator(place.url, timeout=60))
        tables = Tables(engine, ids, place)
        stack.callback(tables.metadata.drop_all, engine)
        uuid7 = uuids()
        kinds = {"COPY": (copies, rows)} if place.backend == "postgresql" else {}
        kinds["INSERT"] = (inserts, rows // SHARE)
        yield [
            Race(f"bulk, {place.name}, {kind}", "rows/s", {name: rate(count, one) for name, one in ways.items()})
            for kind, (of, count) in kinds.items()
            for ways in [of(tables, uuid7)]
        ]
