"""Read the counters of numbers without gaps, and the rows of a host's own table that hold such numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import (
    CHAR,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    MetaData,
    NullPool,
    Select,
    String,
    Table,
    TypeDecorator,
    Uuid,
    cast,
    column,
    create_engine,
    exists,
    func,
    null,
    select,
    table,
    update,
)
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError
from sqlalchemy.types import NullType

from allocator.database.address import Address
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import translate
from allocator.database.tables import number, number_void, shard
from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import split_table

T = TypeVar("T")

BATCH = 5_000
"""Rows in memory at a time: a whole table may not fit."""
WRITE_SECONDS = 60.0
"""Seconds for an answer where rows are numbered: without an index the database scans for those that wait."""
PATIENCE = 3600.0
"""Seconds for an answer: the database may have to sort the whole table first."""
IS_UUID = re.compile("[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\\1[0-9a-fA-F]{4}){2}\\1[0-9a-fA-F]{12}")


class Counter(NamedTuple):
    """A row of `allocator_number`: n is the newest number."""

    name: str
    scope: str
    period: str
    n: int
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A column that holds numbers, and the columns with their scope and period; zone: of datetimes without one."""

    table: str
    column: str
    scope: str | None = None
    period: str | None = None
    zone: tzinfo | None = None

    def count(self) -> Select[Any]:
        return self._rows(func.count())

    def select(self, order: str | None = None) -> Select[Any]:
        """Select number, scope and period of each row with a number, sorted by scope and by `order`, or the number."""
        n: ColumnElement[Any] = column(self.column)
        kinds = ((self.scope, None), (self.period, InZone(self.zone) if self.zone else None))
        beside = [column(name, kind) if name else null() for name, kind in kinds]
        # A text with 10 is before one with 9, but longer.
        by: list[ColumnElement[Any]] = [column(order)] if order else [func.length(cast(n, String))]
        return self._rows(n, *beside).order_by(*([column(self.scope)] if self.scope else []), *by, n)

    def _rows(self, *what: Any) -> Select[Any]:
        schema, bare = split_table(self.table)
        return select(*what).select_from(table(bare, schema=schema or None)).where(column(self.column).is_not(None))


class Read(NamedTuple):
    """A snapshot of a column and its counters; `rows` reads it, and must be read to the end, while it is open."""

    counters: Sequence[Counter]
    void: Sequence[Counter]
    total: int
    rows: Callable[[str | None], Iterator[Sequence[Any]]]


def fetch_counters(connection: Connection, dialect: Dialect, name: str = "") -> Sequence[Counter]:
    """Fetch the counters of a name or of all, sorted."""
    return counters_in(connection, number, name)


def counters_in(connection: Connection, source: Any, name: str) -> Sequence[Counter]:
    """Fetch the rows of a name or of all, sorted."""
    key = (source.c.name, source.c.scope, source.c.period, source.c.n)
    wanted = select(*key, *(source.c[one] for one in ("rule",) if one in source.c)).order_by(*key)
    return [Counter(*row) for row in connection.execute(wanted.where(source.c.name == name) if name else wanted)]


def may_lack_numbers(connection: Connection) -> bool:
    """Whether there are counters in a database that has moved to another server, or was restored."""
    return bool(connection.scalar(select(shard.c.id).where(shard.c.moved_at > 0, exists(select(number.c.n)))))


def forget_rule(connection: Connection, dialect: Dialect, name: str) -> int:
    """Let the next draw decide by which rule the numbers of a name are counted. Returns how many counters there are."""
    return connection.execute(update(number).where(number.c.name == name).values(rule="")).rowcount


def read_column(address: Address, source: Source, name: str, judge: Callable[[Read], T]) -> T:
    """Read a column and its counters in one snapshot, and return what `judge` makes of them.

    Uses an engine of its own with a long timeout. Raises the error that the database's error means.
    """
    with reading(address) as connection:
        if address.dialect.embedded:
            connection.exec_driver_sql("BEGIN")
        counters, void = (counters_in(connection, one, name) for one in (number, number_void))

        def rows(order: str | None = None) -> Iterator[Sequence[Any]]:
            with connection.execution_options(yield_per=BATCH).execute(source.select(order)) as found:
                yield from found

        return judge(Read(counters, void, connection.scalar(source.count()) or 0, rows))


@contextmanager
def reading(address: Address) -> Iterator[Connection]:
    """A connection that may read for long. Raises the error that the database's error means."""
    engine = engine_for(address)
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise translate(error, address.dialect, address.shown, PATIENCE) from error
    finally:
        engine.dispose()


def engine_for(address: Address) -> Engine:
    level = "SERIALIZABLE" if address.dialect.embedded else "REPEATABLE READ"
    return create_engine(
        address.url, poolclass=NullPool, isolation_level=level, connect_args=arguments(address, PATIENCE)
    )


def arguments(address: Address, seconds: float) -> dict[str, Any]:
    """The arguments of a driver whose statements may take so long, in transactions."""
    driver = address.url.get_driver_name()
    given = {} if address.dialect.embedded else address.dialect.engine_args(driver, seconds)["connect_args"]
    return {name: value for name, value in given.items() if name not in address.url.query and name != "autocommit"}


def uuid_of(scope: str) -> UUID | None:
    """Only of 32 digits, with or without dashes."""
    return UUID(scope) if IS_UUID.fullmatch(scope) else None


class InZone(TypeDecorator[Any]):
    """A datetime that an application keeps without its time zone, which is always this one."""

    impl = NullType
    cache_ok = True

    def __init__(self, zone: tzinfo) -> None:
        super().__init__()
        self.zone = zone

    def process_result_value(self, value: Any, _: object) -> Any:
        if isinstance(value, str) and len(value) > len("2026-03-14"):
            value = datetime.fromisoformat(value)
        return value.replace(tzinfo=self.zone) if isinstance(value, datetime) and value.tzinfo is None else value


def read_moments(table: Table, name: str | None, zone: tzinfo | None) -> None:
    """Take datetimes without a time zone for those of `zone`, if there is one."""
    found = None if name is None else table.columns.get(name)
    if zone and found is not None and isinstance(found.type, DateTime):
        found.type = InZone(zone)


def read_uuids(engine: Engine, table: Table, name: str | None) -> None:
    """Take a CHAR(32) of digits for a UUID: where the database has no type for it, SQLAlchemy and Django keep it so."""
    found = None if name is None else table.columns.get(name)
    if found is None or not isinstance(found.type, CHAR) or found.type.length != 32:
        return
    with engine.connect() as connection:
        some = connection.scalar(select(found).where(found.is_not(None)).limit(1))
    if some is None or uuid_of(some):
        found.type = Uuid(native_uuid=False)


@contextmanager
def writing(address: Address, table_name: str) -> Iterator[tuple[Engine, Table]]:
    """An engine, and a table as its catalogue describes it."""
    engine = create_engine(address.url, connect_args=arguments(address, WRITE_SECONDS))
    schema, bare = split_table(table_name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy warns of unknown types of other columns
            found = Table(bare, MetaData(), schema=schema or None, autoload_with=engine, resolve_fks=False)
        yield engine, found
    except NoSuchTableError:
        raise InvalidSetting(f"there is no table {table_name:.255}; that of a model of Django is app_model") from None
    except SQLAlchemyError as error:
        raise translate(error, address.dialect, address.shown, WRITE_SECONDS) from error
    finally:
        engine.dispose()
