"""A database inside of a migration: verbs run on the migration's own connection, in its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from allocator.database.columns import takeovers
from allocator.database.connection import plain
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_held, translate
from allocator.database.postgresql.dialect import PostgreSQL
from allocator.database.store import Database
from allocator.errors import InvalidSetting, SchemaOutOfDate
from allocator.rules.takeover_ranges import REPLICA, is_begun, is_finished, plan, ranges_after

P = ParamSpec("P")
T = TypeVar("T")

LOCK_SECONDS = 60.0
"""Seconds that a takeover tries for its locks, before it fails and names the session that holds them."""
PAUSE = 0.5
"""Seconds between two tries for a lock, in which the writers that queued behind the last try are served."""


class Nested(PostgreSQL):
    """PostgreSQL where each verb is a savepoint already, and its end is not the end of the transaction."""

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        yield


class MigrationDatabase(Database):
    """A database reached by a connection that somebody else opened, commits and closes.

    On PostgreSQL a verb is a part of the transaction: a savepoint, so that a wait for a lock can be repeated. In
    autocommit it has a transaction of its own. MySQL and MariaDB commit what came before each change of a table.
    """

    def __init__(self, connection: Connection) -> None:
        url = plain(connection.engine.url)
        # Nothing connects by this URL. Without the driver, since the library refuses those for asyncio.
        super().__init__(
            url.set(drivername=url.get_backend_name()) if connection.dialect.is_async else url, LOCK_SECONDS
        )
        self._connection = connection
        autocommit = getattr(connection.connection.dbapi_connection, "autocommit", False)
        self._is_nested = self.dialect.transactional_ddl and not self.dialect.embedded and not autocommit
        if self._is_nested:
            self.dialect = Nested()

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        began = monotonic()
        while True:
            try:
                with self._part():
                    return verb(self._connection, self.dialect, *args, **kwargs)
            except SQLAlchemyError as error:
                passed = monotonic() - began
                if not is_held(error, self.dialect) or passed + PAUSE > self.timeout:
                    raise translate(error, self.dialect, self.address.shown, passed) from error
            sleep(PAUSE)

    @contextmanager
    def _part(self) -> Iterator[None]:
        """The settings of the session stay as they were, whatever the verb sets."""
        connection = self._connection
        if self._is_nested:
            with connection.begin_nested():
                former = str(connection.exec_driver_sql(takeovers.native(self.dialect).FORMER_PATIENCE).scalar())
                yield
                connection.exec_driver_sql(former)
        elif self.dialect.transactional_ddl:
            yield
        else:
            former = str(connection.exec_driver_sql(takeovers.native(self.dialect).FORMER_PATIENCE).scalar())
            try:
                yield
            finally:
                if not connection.invalidated:
                    connection.exec_driver_sql(former)

    def upgrade_schema(self) -> None:
        raise SchemaOutOfDate(f"{self.address.shown} lacks tables of the allocator; run: allocator db upgrade")


def take_over(database: Database, action: str, words: str, tag: str, seconds: float, idle: float) -> None:
    """Start, finish or give back, without a look at the rate. Done before, it changes nothing."""
    status = database.run(takeovers.fetch_status, words, tag)
    if status.facts.is_replica:
        raise InvalidSetting(REPLICA)
    if action == "start":
        if not is_begun(status.takeover, status.facts, status.tag, tag):
            takeovers.check_alone(database)
            takeovers.carry_out(database, takeovers.start, status, tag, plan(status.facts, 0.0, seconds))
    elif action == "finish":
        if not is_finished(status.known):
            takeovers.carry_out(database, takeovers.finish, status, status.known, idle)
    elif status.known.state != "given back":
        ranges = ranges_after(status.known, status.tag, status.facts, seconds, status.now_ms)
        takeovers.carry_out(database, takeovers.back, status, status.known, ranges)
