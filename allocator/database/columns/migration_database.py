"""A database inside of a migration: verbs run on the migration's own connection, in its transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from allocator.database.dialect import Dialect
from allocator.database.driver_errors import translate
from allocator.database.store import Database
from allocator.errors import SchemaOutOfDate

P = ParamSpec("P")
T = TypeVar("T")


class MigrationDatabase(Database):
    """A database reached by a connection that somebody else opened, commits and closes.

    On PostgreSQL a verb is a savepoint of the transaction, so that one that fails does not end it; in autocommit it has
    a transaction of its own.
    """

    def __init__(self, connection: Connection) -> None:
        url = connection.engine.url
        # Nothing connects by this URL. Without the driver, since the library refuses those for asyncio.
        super().__init__(url.set(drivername=url.get_backend_name()) if connection.dialect.is_async else url)
        self._connection = connection
        autocommit = getattr(connection.connection.dbapi_connection, "autocommit", False)
        self._is_nested = self.dialect.transactional_ddl and not self.dialect.embedded and not autocommit

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with self._connection.begin_nested() if self._is_nested else nullcontext():
                return verb(self._connection, self.dialect, *args, **kwargs)
        except SQLAlchemyError as error:
            raise translate(error, self.dialect, self.address.shown, self.timeout) from error

    def upgrade_schema(self) -> None:
        raise SchemaOutOfDate(f"{self.address.shown} lacks tables of the allocator; run: allocator db upgrade")
