"""Connections of our own: how they are opened, and how they end.

A claim must never share the user's transaction: a ROLLBACK there would undo a range that is already being served.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, ExceptionContext, Pool, create_engine, event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from allocator.database.address import Address
from allocator.database.dialect import NOWHERE, Dialect, run_of
from allocator.database.driver_errors import translate, unforeseen
from allocator.errors import AllocatorError, DatabaseUnavailable, InvalidDatabase

P = ParamSpec("P")
T = TypeVar("T")

LEFT_OPEN = (
    "a transaction was still open after a statement that should have committed by itself; what it claimed is burnt. "
    "Let no engine, listener, proxy or pooler change autocommit or completion_type of the allocator's connections"
)
GUARD_RESTARTS = "ALLOCATOR_GUARD_RESTARTS"
"""If 1, each start of a server counts as a failover: for operators who restore without `allocator db mark-restored`."""

UNFORESEEN = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ImportError, OSError, RuntimeError)
"""What a driver raises for an argument that it does not take, or a hook of the user that fails."""


def guards_restarts() -> bool:
    return os.environ.get(GUARD_RESTARTS, "0") not in {"", "0"}


def connect(engine: Engine, shown: str) -> Connection:
    try:
        return engine.connect()
    except (AllocatorError, TimeoutError):
        raise
    except UNFORESEEN as error:
        raise unforeseen(error, shown) from error


def check_committed(connection: Connection, dialect: Dialect) -> None:
    """Raise where the commit is not proven: what the verb claimed is burnt."""
    if dialect.leaves_open(connection.connection.dbapi_connection):
        connection.invalidate()
        raise DatabaseUnavailable(LEFT_OPEN)
    if warnings := connection.info.get("warnings"):
        raise DatabaseUnavailable(f"the commit came with a warning, so what it claimed is burnt: {warnings[0]}")


def engine_of(address: Address, timeout: float) -> Engine:
    """An engine in autocommit: returning a connection costs no round trip, and no wait exceeds `timeout` seconds."""
    dialect, url = address.dialect, address.url
    if address.pool is None:
        args = dialect.connect_args(url.get_driver_name(), timeout)
        opening: dict[str, Any] = {
            "connect_args": {name: value for name, value in args.items() if name not in url.query}
        }
    else:
        opening = {"creator": creator_from(address.pool, dialect)}
    if dialect.embedded and not address.is_in_memory:
        opening["poolclass"] = NullPool  # a connection that stays relies on locks of the file that may be lost
    else:
        opening |= {
            "poolclass": QueuePool,
            "pool_size": dialect.pool_size,
            "max_overflow": 0,
            "pool_timeout": timeout,
            "pool_use_lifo": True,
            "pool_recycle": dialect.recycle,
        }
    try:
        engine = create_engine(
            url,
            **opening,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
            pool_reset_on_return=None,
            enable_from_linting=False,  # `verbs/start.py` joins unrelated tables
        )
    except (ArgumentError, ValueError) as error:
        raise InvalidDatabase(f"{address.shown} cannot be used: {str(error).splitlines()[0]}") from error
    dialect.on_engine(engine)
    listen(engine, address, timeout)
    return engine


def listen(engine: Engine, address: Address, timeout: float) -> None:
    dialect, file = address.dialect, address.file

    # Runs before SQLAlchemy inspects the session, so that it sees the settings that stay, ANSI_QUOTES for one.
    @event.listens_for(engine, "connect", insert=True)
    def prepare(connection: Any, record: Any) -> None:
        record.info["path"], record.info["is_given"] = os.path.realpath(file) if file else "", address.pool is not None
        record.info["guards_restarts"] = guards_restarts()
        dialect.on_connect(connection, record.info, timeout)

    @event.listens_for(engine, "handle_error")
    def leave(context: ExceptionContext) -> None:
        # A new connection may reach another server of the cluster; an old one stays with this one.
        if dialect.is_misplaced(context.original_exception):
            context.is_disconnect = True
        elif address.is_in_memory:  # it would end, and SQLAlchemy leaves a connection after Ctrl-C
            context.is_disconnect = False


def creator_from(pool: Pool, dialect: Dialect) -> Callable[[], Any]:
    """Open connections as the user's engine does; none of them counts in its pool."""

    def creator() -> Any:
        connection = pool.connect()
        connection.detach()
        dialect.on_given(connection.dbapi_connection)
        return connection.dbapi_connection

    return creator


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
            with self._identified() as spoken, self._savepoint():
                return verb(self._connection, spoken, *args, **kwargs)
        except SQLAlchemyError as error:
            raise translate(error, self._dialect, self._shown, 0.0) from error

    def _savepoint(self) -> Any:
        return self._connection.begin_nested() if self._is_nested else nullcontext()

    @contextmanager
    def _identified(self) -> Iterator[Dialect]:
        """Let statements compare the server run, as on connections of our own; what the owner keeps there stays."""
        info = self._connection.info
        kept = {name: info[name] for name in ("run", "guards_restarts") if name in info}
        info["guards_restarts"] = guards_restarts()
        try:
            for words in self._dialect.runs(self._connection, info["guards_restarts"]):
                with suppress(SQLAlchemyError), self._savepoint():
                    info["run"] = words
                    self._connection.exec_driver_sql(f"SELECT {words}").close()
                    break
            says = self._dialect.embedded or run_of(self._connection) != NOWHERE
            yield self._dialect if says else self._dialect.imitation
        finally:
            for name in ("run", "guards_restarts"):
                info.pop(name, None)
            info.update(kept)
