"""What a database must be able to do: every act on it is one plain function on a Connection in autocommit.

The verbs are in a file for each noun. What differs between the databases is in `postgresql.py`, `mysql.py` and
`sqlite.py`, and only that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, update
from sqlalchemy.exc import DBAPIError

from allocator.database.tables import shard
from allocator.database.verbs.batch import BatchVerbs
from allocator.database.verbs.node_gaps import GroundVerbs
from allocator.database.verbs.shard import ShardVerbs
from allocator.database.verbs.tokens import TokenVerbs
from allocator.errors import AllocatorError, DatabaseRefused, DatabaseUnavailable

LEFT_OPEN = (
    "a transaction was still open after a statement that should have committed by itself; what it claimed is burnt. "
    "Let no engine, listener, proxy or pooler change autocommit or completion_type of the allocator's connections"
)

MAX_CONNECT_SECONDS = 10.0
"""To a server that does not even answer, however patient the statements may be."""


class Dialect(BatchVerbs, ShardVerbs, GroundVerbs, TokenVerbs):
    """What all databases have in common; one subclass for each, with the difference."""

    name: ClassVar[str]
    default_driver: ClassVar[str]
    """The driver that a URL without one means."""
    needs_name: ClassVar[bool] = False
    """A URL must name the database."""
    extra: ClassVar[str]
    """The extra of this package that installs it; empty where nothing is needed."""
    errors: ClassVar[Mapping[str, type[AllocatorError]]] = {}
    """The driver's error codes that mean more than "try again later"."""
    contended: ClassVar[frozenset[str]] = frozenset()
    """The codes after which the same statement may simply be run again: deadlocks and the like."""
    misplaced: ClassVar[frozenset[str]] = frozenset()
    """The codes of a server that cannot write now, where another one of its cluster can: its connections are left."""
    pool_size: ClassVar[int] = 8
    embedded: ClassVar[bool] = False
    """The database is this library's own file, so it makes its schema by itself."""

    forbidden: ClassVar[frozenset[str]] = frozenset()
    """The codes of a statement for which the user lacks the right."""

    def check_writer(self, connection: Connection) -> None:
        """Raise where this user could not write the shard's row."""
        try:
            connection.execute(update(shard).where(shard.c.id == 0).values(revision=0))
        except DBAPIError as error:
            if error.orig and self.code(error.orig) in self.forbidden:
                raise DatabaseRefused(
                    "this user may not write allocator_shard, as making or growing a fleet does: use the user that "
                    "ran allocator db upgrade; run that again where it was left out, with --url once for each shard"
                ) from error
            raise

    def check_owner(self, connection: Connection) -> None:
        """Raise where this user could not change the numbering of the table either."""
        self.check_writer(connection)

    # -- connections

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        """Arguments for a driver, of which a URL's own query wins."""
        return {}

    def cautious_args(self, url: URL) -> dict[str, Any]:
        """More arguments, for a server that a shard's row names: whatever it asks for, it gets no password in clear."""
        return {}

    def on_engine(self, engine: Engine) -> None:
        """Prepare a new engine, before anything is connected."""

    def on_given(self, connection: Any) -> None:
        """Let last what a listener of the user's has set; autocommit cannot be set in a transaction that it began."""
        connection.commit()

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        """Prepare a new connection of the driver; `info` stays with it. A round trip here is one per connection."""

    def before(self, connection: Connection) -> None:
        """Called before a verb."""

    def after(self, connection: Connection) -> None:
        """Called after a verb, which counts for nothing if this raises: as where its commit is not proven."""
        if self.leaves_open(connection.connection.dbapi_connection):
            connection.invalidate()
            raise DatabaseUnavailable(LEFT_OPEN)

    def leaves_open(self, driver_connection: Any) -> bool:
        """Whether the last answer says that a transaction is open. Asks nothing; a driver that cannot tell says no."""
        return getattr(driver_connection, "in_transaction", False) is True

    def code(self, error: BaseException) -> str:
        """The driver's code for an error; empty when it has none."""
        return ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        """Let one change of the schema run at a time, in one transaction where the database has such."""
        raise NotImplementedError
        yield

    def triggers(self, connection: Connection, table_name: str) -> list[str]:
        """The names of the triggers on a table."""
        raise NotImplementedError
