"""Connections of our own: how they are opened, how a verb runs on one, and how they end.

A claim must never share the user's transaction: a ROLLBACK there would undo a range that is already being served.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, ExceptionContext, Pool, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from allocator.database.address import Address, address_of
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import as_raised, is_answer, is_contended, is_stale, translate, unforeseen
from allocator.errors import AllocatorClosed, AllocatorError, DatabaseUnavailable, InvalidDatabase, NotCopyable
from allocator.runtime.forks import catch_up
from allocator.runtime.thread_pool import beside, takes_signals

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("allocator")

CONTENDED_PAUSE = 0.005
"""Seconds before the first retry after a deadlock; the pause doubles, since many may be retrying."""

LEFT_OPEN = (
    "a transaction was still open after a statement that should have committed by itself; what it claimed is burnt. "
    "Let no engine, listener, proxy or pooler change autocommit or completion_type of the allocator's connections"
)
GUARD_RESTARTS = "ALLOCATOR_GUARD_RESTARTS"
"""If 1, each start of a server counts as a failover: for operators who restore without `allocator db mark-restored`."""

UNFORESEEN = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ImportError, OSError, RuntimeError)
"""What a driver raises for an argument that it does not take, or a hook of the user that fails."""

abandoned: list[Pool] = []
"""Pools inherited by a fork. Their connections are the parent's: kept, so that no garbage collection closes them."""


class Runner:
    """One database, reached by connections that belong to the allocator alone.

    Safe to use from several threads. Nothing is opened before the first verb.
    """

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        self.address: Address = address_of(database)
        self.timeout = timeout
        self.dialect = self.address.dialect
        self.engine: Engine = engine_of(self.address, timeout)
        self._closed = False
        self._is_in_memory = self.address.is_in_memory
        self._was_forked = False
        self._file = self.address.file
        self.may_create = True
        """Whether SQLite may make a missing file, which would be empty: not for a shard, nor for one that was there."""

    def __repr__(self) -> str:
        return f"<Database {self.address.shown}>"

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a connection of our own.

        A lost connection may hide a commit, and the verb is run again: `allocator.database.verbs` says why each may be.
        """
        # A signal handler that raises inside of a statement, or of the pool's own code, would leave it half done.
        here = partial(self._run, verb, *args, **kwargs)
        return beside(here) if takes_signals() else here()

    def transact(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, in a transaction."""

        def within(connection: Connection, dialect: Dialect) -> T:
            with dialect.transaction(connection):
                return verb(connection, dialect, *args, **kwargs)

        return self.run(within)

    def _run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        is_new = self._check_there()
        began, pause, was_asked = monotonic(), CONTENDED_PAUSE, False
        try:
            for attempt in count():
                try:
                    return self._run_once(began + self.timeout, verb, *args, **kwargs)
                except SQLAlchemyError as error:
                    passed = monotonic() - began
                    if is_contended(error, self.dialect) and passed + pause < self.timeout:
                        sleep(pause)
                        pause = min(2 * pause, self.dialect.max_pause)
                    elif not was_asked and self._identity_was_refused(error):
                        was_asked = True
                    # A connection lost at once was stale in the pool. One lost later: the server is in trouble.
                    elif attempt or not is_stale(error) or passed > self.timeout / 2:
                        raise translate(error, self.dialect, self.address.shown, passed) from error
        finally:
            if is_new:  # also where the verb failed
                self._tell_made()
        raise AssertionError("unreachable")

    def _run_once(
        self, end: float, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        dialect = self.dialect
        with dialect.alone(self._file, end), self._connect() as connection:
            try:
                spoken = dialect.before(connection)
                result = verb(connection, spoken, *args, **kwargs)
            except BaseException as error:
                # A MemoryError, or an exception sent to this thread, may have left a statement under way, whose answer
                # the next one would read. A database in memory waits for none, and would end with its connection.
                if not (is_answer(error) or self._is_in_memory):
                    connection.invalidate(error)
                raise as_raised(error)  # noqa: B904  the error itself, unless SQLAlchemy has wrapped it
            check_committed(connection, spoken)
            self.may_create = False
            return result

    def _connect(self) -> Connection:
        try:
            return self.engine.connect()
        except (AllocatorError, TimeoutError):
            raise
        except UNFORESEEN as error:
            raise unforeseen(error, self.address.shown) from error

    def _identity_was_refused(self, error: SQLAlchemyError) -> bool:
        """Whether a server refused to identify itself, and a statement that asks for less was found."""
        if not isinstance(error, DBAPIError) or not error.orig or not self.dialect.is_refusal(error.orig):
            return False
        with suppress(SQLAlchemyError):
            return self._run_once(monotonic() + self.timeout, find_identity)
        return False

    def _check_there(self) -> bool:
        """Raise if the database cannot be there. Returns whether its file is missing and may be made."""
        catch_up()
        if self._closed:
            raise AllocatorClosed
        if self._was_forked and self._is_in_memory:
            raise NotCopyable(
                "a database in memory cannot be used after a fork, since the parent has it: make another Allocator in "
                "the child, or use a file, as in sqlite:///ids.db"
            )
        if self._file is None or not self.is_missing():
            return False
        if not self.may_create:
            raise DatabaseUnavailable(f"there is no file {self._file}; check the path, or put it back")
        return True

    def _tell_made(self) -> None:
        if not self.is_missing():
            with suppress(Exception):  # a failing handler of the user's must not cost what the verb returns
                log.warning(
                    "made a new SQLite database at %s: its ids begin at 1; if there was one before, stop and put it "
                    "back",
                    os.path.realpath(str(self._file)),
                )

    def is_missing(self) -> bool:
        try:
            return self._file is not None and not Path(self._file).exists()
        except OSError:
            return False  # the folder may not be entered, as the driver says better

    def close(self) -> None:
        self._closed = True
        self.engine.dispose()

    def abandon(self) -> None:
        """In a forked child: drop the connections without closing them, since they are the parent's."""
        self._was_forked = True
        abandoned.append(self.engine.pool)
        if given := self.address.pool:
            abandoned.append(given)
            self.address = replace(self.address, pool=given.recreate())
        self.engine = engine_of(self.address, self.timeout)  # a thread of the parent may hold a lock of the old pools


def find_identity(connection: Connection, dialect: Dialect) -> bool:
    """See `Dialect.find_identity`."""
    return dialect.find_identity(connection)


def guards_restarts() -> bool:
    return os.environ.get(GUARD_RESTARTS, "0") not in {"", "0"}


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
