"""The column of an application's own table that holds numbers without gaps: read for an audit, and numbered."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    CHAR,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    MetaData,
    Select,
    String,
    Table,
    Uuid,
    cast,
    column,
    create_engine,
    func,
    null,
    select,
    table,
)
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

from allocator.database.address import Address
from allocator.database.dialect import MAX_CONNECT_SECONDS
from allocator.database.driver_errors import translate
from allocator.database.tables import number, number_void
from allocator.database.verbs.gapless_number_rows import counters_in
from allocator.database.verbs.waiting_columns import Moment
from allocator.errors import InvalidSetting
from allocator.schemes.gapless_audit import Found, Row, audit, disorder, read_row
from allocator.schemes.gapless_numbers import Group, NumberRule
from allocator.schemes.shared.argument_checks import split_table

BATCH = 5_000
"""Rows in memory at a time: a whole table may not fit."""
READ_SECONDS = 3600.0
"""Seconds for an answer of an audit: the database may have to sort the whole table first."""
WRITE_SECONDS = 60.0
"""Seconds for an answer where rows are numbered: without an index the database scans for those that wait."""
IS_UUID = re.compile("[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\\1[0-9a-fA-F]{4}){2}\\1[0-9a-fA-F]{12}")


@contextmanager
def engine_for(address: Address, seconds: float) -> Iterator[Engine]:
    """An engine for statements of so many seconds, in transactions. Raises what an error of the database means."""
    driver = address.url.get_driver_name()
    given = address.dialect.engine_args(driver, seconds)["connect_args"] | {"connect_timeout": MAX_CONNECT_SECONDS}
    left_out = {"autocommit", *(given if address.dialect.embedded else address.url.query)}
    arguments = {name: value for name, value in given.items() if name not in left_out}
    engine = create_engine(address.url, connect_args=arguments)
    try:
        yield engine
    except SQLAlchemyError as error:
        raise translate(error, address.dialect, address.shown, seconds) from error
    finally:
        engine.dispose()


class Source(NamedTuple):
    """A column that holds numbers, and the columns with their scope and period; zone: of datetimes without one."""

    table: str
    column: str
    scope: str | None = None
    period: str | None = None
    zone: tzinfo | None = None

    @property
    def rows(self) -> Select[Any]:
        """Number, scope and period of each row with a number."""
        schema, bare = split_table(self.table)
        n: ColumnElement[Any] = column(self.column)
        beside = (column(name) if name else null() for name in (self.scope, self.period))
        return select(n, *beside).select_from(table(bare, schema=schema or None)).where(n.is_not(None))


@contextmanager
def snapshot(address: Address) -> Iterator[Connection]:
    """A connection that sees one moment. Raises the error that the database's error means."""
    with engine_for(address, READ_SECONDS) as engine, engine.connect() as connection:
        if address.dialect.embedded:
            connection.exec_driver_sql("BEGIN")
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


def audit_rows(
    connection: Connection, source: Source, rule: NumberRule, zone: tzinfo, order: str | None
) -> tuple[int, Iterator[Found]]:
    """Count the rows with a number, and find what is wrong with them, in order of a column too. Read all of it."""

    def rows(by: Any) -> Iterator[Row]:
        scope: list[Any] = [column(source.scope)] if source.scope else []
        statement = source.rows.order_by(*scope, by, column(source.column))
        with connection.execution_options(yield_per=BATCH).execute(statement) as found:
            for n, scope_of, at in found:
                yield read_row(rule, zone, n, scope_of, at, source.zone)

    counters, void = (
        {(Group(one.scope, one.period), one.n) for one in counters_in(connection, stored, rule.name)}
        for stored in (number, number_void)
    )
    total = connection.scalar(source.rows.with_only_columns(func.count(), maintain_column_froms=True)) or 0
    by_number = func.length(cast(column(source.column), String))  # a text with 10 is before one with 9, but longer
    found = audit(rows(by_number), dict(counters), void, start=rule.start)
    return total, chain(found, disorder(rows(column(order))) if order else ())


def uuid_of(scope: str) -> UUID | None:
    """Only of 32 digits, with or without dashes."""
    return UUID(scope) if IS_UUID.fullmatch(scope) else None


def read_moments(table: Table, name: str | None, zone: tzinfo | None) -> None:
    """Take datetimes without a time zone for those of `zone`, if there is one."""
    found = None if name is None else table.columns.get(name)
    if zone and found is not None and isinstance(found.type, DateTime):
        found.type = Moment(str(found), zone)


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
    schema, bare = split_table(table_name)
    with engine_for(address, WRITE_SECONDS) as engine:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SQLAlchemy warns of unknown types of other columns
                found = Table(bare, MetaData(), schema=schema or None, autoload_with=engine, resolve_fks=False)
        except NoSuchTableError:
            no_table = f"there is no table {table_name:.255}; that of a model of Django is app_model"
            raise InvalidSetting(no_table) from None
        yield engine, found
