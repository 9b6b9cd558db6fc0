"""Statements by the driver's cursor, without SQLAlchemy's execution layer, which took a third of a claim's CPU.

The cursor stays with its connection: on psycopg making one takes a quarter of the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from sqlalchemy import Connection, CursorResult, Engine, PoolProxiedConnection, TextClause, Update, text
from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect


F = TypeVar("F", bound=Callable[..., Any])

driver_verbs: set[object] = set()


def by_driver(verb: F) -> F:
    """Run this verb on a `DriverConnection`, unless the application listens to statements or logs them."""
    driver_verbs.add(verb)
    return verb


class DriverConnection:
    """A connection of the pool, as far as a claim needs `sqlalchemy.Connection`: same names, same errors."""

    __slots__ = ("connection", "cursor", "dialect", "engine", "info", "invalidated", "own")

    def __init__(self, engine: Engine, own: Dialect) -> None:
        self.engine, self.dialect, self.own = engine, engine.dialect, own
        self.cursor: Any = None
        self.invalidated = False
        try:
            self.connection: PoolProxiedConnection = engine.pool.connect()
        except self.dialect.loaded_dbapi.Error as error:
            self.handle(error)
            raise
        self.info = self.connection.info

    def exec_driver_sql(self, sql: str, parameters: Any = ()) -> DriverResult:
        try:
            self.cursor = cursor = self.info.get("cursor") or self.connection.cursor()
            cursor.execute(sql, parameters)
            rows = cursor.fetchall() if cursor.description is not None else ()  # SQLite commits here
        except BaseException as error:
            self.info.pop("cursor", None)
            self.handle(error)
            raise
        self.info["cursor"] = cursor
        return DriverResult(self, rows)

    def handle(self, error: BaseException) -> None:
        """Raise what SQLAlchemy raises in place of a driver's error."""
        if isinstance(error, self.dialect.loaded_dbapi.Error):
            raise wrapped(self, error, lost=self.own.is_misplaced(error)) from error

    def invalidate(self, error: BaseException | None = None) -> None:
        self.invalidated = True
        if self.connection.is_valid:
            self.connection.invalidate(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.invalidated:
            self.connection.close()


class DriverResult:
    """The result of one statement, until the next one: they share a cursor, which `context` has as SQLAlchemy's has."""

    __slots__ = ("context", "cursor", "rows")

    def __init__(self, connection: DriverConnection, rows: Sequence[Any]) -> None:
        self.context, self.cursor, self.rows = connection, connection.cursor, rows

    @property
    def rowcount(self) -> int:
        return self.cursor.rowcount  # type: ignore[no-any-return]

    @property
    def lastrowid(self) -> int:
        return self.cursor.lastrowid  # type: ignore[no-any-return]

    @property
    def returns_rows(self) -> bool:
        return self.cursor.description is not None

    def all(self) -> Sequence[Any]:
        return self.rows

    def close(self) -> None:
        self.context.info.pop("cursor", None)
        self.cursor.close()


@lru_cache
def compiled(statement: str | Update | TextClause, dialect: SQLDialect) -> tuple[str, Sequence[str] | None]:
    """The SQL text for the driver, and the order of positional parameters."""
    done = (text(statement) if isinstance(statement, str) else statement).compile(dialect=dialect)
    return str(done), done.positiontup if done.positional else None


def execute(
    connection: Connection, statement: str | Update | TextClause, parameters: Mapping[str, object]
) -> CursorResult[Any]:
    """As `connection.execute`, which spends a sixth of a claim's CPU on the lookup of the compiled statement."""
    sql, order = compiled(statement, connection.dialect)
    return connection.exec_driver_sql(sql, parameters if order is None else tuple(map(parameters.__getitem__, order)))


def is_watched(engine: Engine) -> bool:
    """Whether somebody listens to statements or logs them, which SQLAlchemy does for its own connections alone."""
    heard = engine.dispatch
    return bool(heard.before_cursor_execute or heard.after_cursor_execute) or engine.logger.isEnabledFor(logging.INFO)


def wrapped(connection: Any, error: Exception, cursor: Any = None, *, lost: bool) -> DBAPIError:
    """Wrap an error as SQLAlchemy does. A `lost` server's connections are not used again."""
    dialect = connection.dialect
    proxied = getattr(connection, "connection", None)
    lost = dialect.is_disconnect(error, proxied and proxied.dbapi_connection, cursor) or lost
    if lost and proxied:
        connection.engine.pool._invalidate(proxied, error)
        connection.invalidate(error)
    base = dialect.loaded_dbapi.Error
    return cast(DBAPIError, DBAPIError.instance("", {}, error, base, connection_invalidated=lost, dialect=dialect))
