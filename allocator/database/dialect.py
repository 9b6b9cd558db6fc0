"""What differs between the databases: one class for each, in the folders `postgresql`, `mysql` and `sqlite`.

Reads and writes of rows are plain functions of a connection and its dialect, a file for each noun in `verbs/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, Insert, Table, TextClause, func

from allocator.database.driver_errors import MISPLACED
from allocator.database.schema.tables import node
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import damaged
from allocator.schemes.ticket import CLAIM

if TYPE_CHECKING:
    from allocator.database.verbs.gapless_number_rows import NumberDialect
    from allocator.schemes.tag_column import Counter

MAX_CONNECT_SECONDS = 10.0
"""Seconds: the longest wait for a connection, even where statements may take longer."""

NOWHERE = "''"
"""The server run of an engine that cannot identify itself: its rows name no run, and no failover is noticed."""


SKIPPED = {"host": "skipped", "process": 0, "version": "", "started_at": func.now()}
"""Of a row of `allocator_node` that no process has."""


class Blind(NamedTuple):
    """What the failover guard cannot see, and the remedy, a sentence each. If it `sleeps`, it sees nothing."""

    found: str
    mend: str
    sleeps: bool = False


ASLEEP = Blind(
    "the failover guard sleeps: this server does not say which one it is",
    "run allocator db mark-restored after each failover or restore, before ids are drawn",
    sleeps=True,
)


class Dialect:
    """What all databases have in common."""

    name: ClassVar[str]
    default_driver: ClassVar[str]
    unusable_drivers: ClassVar[frozenset[str]] = frozenset()
    """Drivers, as SQLAlchemy names them, by which no claim succeeds."""
    needs_name: ClassVar[bool] = False
    """Refuse a URL that names no database: MySQL connects without one, and then finds no table."""
    may_name: ClassVar[frozenset[str]] = frozenset()
    """Arguments of a URL that may lead to the name of a database, such as an option file."""
    extra: ClassVar[str]
    """The extra of this package that installs the driver; empty where Python brings it."""
    pool_size: ClassVar[int] = 4
    """Connections of a process. Twenty-five processes fit into the 100 that PostgreSQL has by default."""
    recycle: ClassVar[int] = -1
    """Seconds after which a connection is replaced when it is next used; -1 for never."""
    embedded: ClassVar[bool] = False
    """The database is this library's own file, so it makes its schema by itself."""
    columns_have_types: ClassVar[bool] = True
    """A column has a type, and integer types have widths. Else any column holds 64 bits, and may have no type."""

    mends: ClassVar[str] = "NULL"
    """An SQL expression: the statements that undo what lets ids repeat without any statement noticing, which are
    triggers and rules on tables that ids are drawn from, and engines without transactions. NULL without any."""

    transactional_ddl: ClassVar[bool] = True
    """DDL can be rolled back. Where it cannot, each change of a table commits the statements before it."""
    rolls_back_by_itself: ClassVar[bool] = False
    """The server may roll back the whole transaction at an error, and begin another one without a word."""
    max_pause: ClassVar[float] = 0.2
    """Seconds before the last retries after a deadlock or the like."""
    begin: ClassVar[str] = "BEGIN"
    claiming: ClassVar[str]
    """The claim, with `{run}` and `{lasting}` to be filled in; see `verbs/claims.py`."""
    has_returning: ClassVar[bool] = True
    """An INSERT returns what the server made."""
    skips_locked: ClassVar[str] = "SKIP LOCKED"
    """The end of a SELECT that is refused where a row is locked."""
    clock: ClassVar[str]
    """An SQL expression for the milliseconds since 1970."""
    imitation: ClassVar[Dialect]
    """The dialect of an engine that only looks like this one, or does not say which server it is."""

    def numbers(self, is_mariadb: bool) -> NumberDialect:
        """How numbers without gaps are drawn in a transaction of the application."""
        raise NotImplementedError

    def counter(self, connection: Connection, schema: str, table_name: str, column_name: str) -> Counter | None:
        """The counter of a column of the application that numbers rows by itself; None where nothing can hold it."""
        return None

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        """Arguments for the driver; the URL's query overrides them."""
        return {}

    def on_engine(self, engine: Engine) -> None:
        """Prepare a new engine, before anything is connected."""

    def on_given(self, connection: Any) -> None:
        """Commit what a listener of the user's engine has set: autocommit cannot be set inside its transaction."""
        connection.commit()

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        """Prepare a new connection of the driver; `info` stays with it. A round trip here is one per connection.

        info: `run` is an SQL expression for the server run; `warnings` collects those of the verb that runs. `path` is
        the file that the URL names, without symbolic links; `is_given` says that the user's engine has opened it.
        """

    def alone(self, file: str | None, end: float) -> AbstractContextManager[object]:
        """Keep other processes out of the file while a verb runs, where the locks of the database can be lost."""
        return nullcontext()

    def before(self, connection: Connection) -> Dialect:
        """Called before a verb: the dialect of this connection, this one or `imitation`."""
        return self

    def leaves_open(self, driver_connection: Any) -> bool:
        """Whether the last answer says that a transaction is open. Asks nothing; a driver that cannot tell says no."""
        raise NotImplementedError

    def code(self, error: BaseException) -> str:
        """The driver's code for an error; empty when it has none."""
        return ""

    def is_misplaced(self, error: BaseException) -> bool:
        """Whether another server has taken over, and this connection must be left."""
        return self.code(error) in MISPLACED

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Several statements as one, on a connection that otherwise commits each."""
        connection.exec_driver_sql(self.begin)
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            undo(connection)
            raise

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        """Lock the schema for one change at a time, in a transaction where DDL has transactions."""
        with self.transaction(connection):
            yield

    def is_refusal(self, error: BaseException) -> bool:
        """Whether a statement may have failed because the server refuses to identify itself."""
        return False

    def find_identity(self, connection: Connection) -> bool:
        """Find what the server does tell about itself, for the whole engine. True if the statement may be retried."""
        return False

    def blind(self, connection: Connection) -> Blind | None:
        """What the failover guard cannot see on this server; None if it sees everything."""
        return None

    def lasting(self, connection: Connection) -> str:
        """An SQL condition that makes the commit of its statement durable, where a session may be set otherwise."""
        return "1 = 1"

    def facts(self, connection: Connection) -> Mapping[str, str]:
        """SQL expressions by name, for what a process asks the server at its start; see `verbs/start.py`."""
        return {"run": run_of(connection), "at": self.clock, "mends": self.mends}

    def run(self, connection: Connection, facts: Any, known: Move) -> str:
        """The server run by these facts: that of the row, `known`, where it is the same."""
        return str(facts.run)

    def server_numbering(self, facts: Any) -> Residue:
        """The auto-increment offset and step of a server that is configured as one of several without a cluster."""
        return ALL

    def number_as(self, connection: Connection, residue: Residue) -> None:
        """Set the auto-increment of this session, where the server's own may be that of a replication."""

    def runs(self, connection: Connection, guards_restarts: bool) -> Iterator[str]:
        """Expressions for the server run on a connection that somebody else opened; the first that works is ours."""
        yield NOWHERE

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.greatest(value, other)

    def insert_missing(self, table: Table) -> Insert:
        """Insert a row, or nothing when its key is there."""
        raise NotImplementedError

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        """Run it, for a name: the end of what is claimed, None if no row matched."""
        return only_row(connection.execute(claim, parameters).all(), name)

    def tickets(self, connection: Connection) -> str:
        """How a new database draws tickets: by a claim, or by REPLACE where that is a statement of the server."""
        return CLAIM

    def shared_lock(self, connection: Connection) -> str:
        """The end of a SELECT that locks the shard's row against changes: `shards make` waits for what is drawn under
        the old residue."""
        return ""

    def lock_shard_row(self, connection: Connection, waits: bool) -> bool:
        """Within a transaction: lock the shard's row, in a statement of its own. False where it is locked, unless this
        `waits`."""
        rows = connection.exec_driver_sql(
            f"SELECT id FROM allocator_shard WHERE id = 1 FOR UPDATE {'' if waits else self.skips_locked}"
        )
        return rows.first() is not None

    def skip_nodes(self, connection: Connection, residue: Residue, count: int) -> None:
        """Skip node numbers above the greater of counter and rows: a row with an explicit number raises both."""
        self.number_as(connection, ALL)
        row = {**SKIPPED, "slot": residue.offset, "slots": residue.step}
        last = connection.execute(node.insert().values(row)).inserted_primary_key
        connection.execute(node.insert().values(row | {"id": (last[0] if last else 0) + count}))


def undo(connection: Connection) -> None:
    """Roll back: a later claim inside an open transaction would be served without a commit."""
    if connection.invalidated:
        return
    try:
        connection.exec_driver_sql("ROLLBACK")
    except Exception:  # it had ended by itself, or its connection cannot be trusted
        if getattr(connection.connection.dbapi_connection, "in_transaction", True):
            connection.invalidate()


def run_of(connection: Connection) -> str:
    """An SQL expression for the server run.

    Each statement contains it, because a pooler or proxy may send two statements of one connection to two servers.
    """
    return str(connection.info.get("run", NOWHERE))


def only_row(rows: Sequence[Any], name: str) -> int | None:
    """The value that a claim returned. Raises what a damaged table causes."""
    if len(rows) > 1:
        raise damaged(name, f"there are {len(rows)} rows")
    value: object = rows[0][0] if rows else None
    if value is not None and not isinstance(value, int):
        raise damaged(name, f"max_value is {value!r}")
    return value
