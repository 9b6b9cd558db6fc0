"""Connections of our own: how they are opened, and how they end.

A claim must never share the user's transaction: a ROLLBACK there would undo a range that is already being served.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, ExceptionContext, Pool, create_engine, event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from allocator.database.address import Address
from allocator.database.dialect import MAX_CONNECT_SECONDS, Dialect
from allocator.database.driver_errors import MISPLACED, translate
from allocator.errors import DatabaseRefused, InvalidDatabase

P = ParamSpec("P")
T = TypeVar("T")

LEFT_OPEN = (
    "a transaction was still open after a statement that should have committed by itself; what it claimed is burnt. "
    "Let no engine, listener, proxy or pooler change autocommit or completion_type of the allocator's connections"
)
CONNECTIONS = 4
"""Of a process. Twenty-five processes fit into the 100 that PostgreSQL has by default."""

UNFORESEEN = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ImportError, OSError, RuntimeError)
"""What a driver raises for an argument of the URL that it does not take, or a hook of the user that fails."""


def unforeseen(error: Exception, where: str) -> DatabaseRefused:
    return DatabaseRefused(
        f"{where} cannot be used: {type(error).__name__}: {error}; the driver, or a listener of the engine, raised this"
    )


def engine_of(address: Address, timeout: float) -> Engine:
    """An engine in autocommit: returning a connection costs no round trip, and no wait exceeds `timeout` seconds."""
    dialect, url = address.dialect, address.url
    opening = dialect.engine_args(url.get_driver_name(), min(timeout, MAX_CONNECT_SECONDS))
    if address.pool is None:
        given = opening["connect_args"].items()
        opening["connect_args"] = {name: value for name, value in given if name not in url.query}
    else:
        opening |= {"connect_args": {}, "creator": partial(open_from, address.pool)}
    if dialect.embedded and not address.is_in_memory:
        opening["poolclass"] = NullPool  # a connection that stays relies on locks of the file that may be lost
    else:
        opening |= {
            "poolclass": QueuePool,
            "pool_size": 1 if dialect.embedded else CONNECTIONS,  # a database in memory is one connection
            "max_overflow": 0,
            "pool_timeout": timeout,
            "pool_use_lifo": True,
        }
    try:
        engine = create_engine(
            url,
            **opening,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
            pool_reset_on_return=None,
            enable_from_linting=False,  # `segments.SNAPSHOT` joins unrelated tables
        )
    except (ArgumentError, ValueError) as error:
        raise InvalidDatabase(f"{address.shown} cannot be used: {str(error).splitlines()[0]}") from error
    prepare = partial(dialect.on_connect, engine, address.file, address.pool is not None, timeout)
    # Runs before SQLAlchemy inspects the session, so that it sees the settings that stay, ANSI_QUOTES for one.
    event.listen(engine, "connect", prepare, insert=True)
    event.listen(engine, "handle_error", partial(leave, address))
    return engine


def leave(address: Address, context: ExceptionContext) -> None:
    # A new connection may reach another server of the cluster; an old one stays with this one.
    if address.dialect.code(context.original_exception) in MISPLACED:
        context.is_disconnect = True
    elif address.is_in_memory:  # it would end, and SQLAlchemy leaves a connection after Ctrl-C
        context.is_disconnect = False


def open_from(pool: Pool) -> Any:
    """Open a connection as the user's engine does; it does not count in its pool."""
    connection = pool.connect()
    connection.detach()
    return connection.dbapi_connection


class Lent:
    """A connection that somebody else opened, commits and closes, as that of a migration.

    On PostgreSQL a verb is a savepoint of the transaction, so that one that fails does not end it; in autocommit it has
    a transaction of its own.
    """

    def __init__(self, connection: Connection, dialect: Dialect, shown: str) -> None:
        self._connection, self._dialect, self._shown = connection, dialect, shown
        autocommit = getattr(connection.connection.dbapi_connection, "autocommit", False)
        self._is_nested = not (autocommit or dialect.embedded or dialect.rolls_back_by_itself)

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            spoken = self._find_run()
            with self._savepoint():
                return verb(self._connection, spoken, *args, **kwargs)
        except SQLAlchemyError as error:
            raise translate(error, self._dialect, self._shown, 0.0) from error

    def _find_run(self) -> Dialect:
        """Let statements compare the server run, as on connections of our own. Each time: the owner may reconnect."""
        for words, spoken in self._dialect.server_runs(self._connection):
            self._connection.info["allocator_run"] = words
            with suppress(SQLAlchemyError), self._savepoint():
                self._connection.exec_driver_sql(f"SELECT {words}").close()
                return spoken
        return self._dialect

    def _savepoint(self) -> Any:
        return self._connection.begin_nested() if self._is_nested else nullcontext()
