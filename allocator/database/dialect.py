"""What differs between the databases: one class for each, in `postgresql.py`, `mysql.py` and `sqlite.py`.

Reads and writes of rows are plain functions of a connection and its dialect, a file for each noun in `verbs/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sqlalchemy import Connection, Engine, TextClause, func, text

from allocator.database.tables import node
from allocator.errors import SchemaDamaged
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.ticket import CLAIM

if TYPE_CHECKING:
    from allocator.schemes.tag_column import Counter

MAX_CONNECT_SECONDS = 10
"""The longest wait for a connection, even where statements may take longer."""

NOWHERE = "''"
"""The server run of an engine that cannot identify itself: its rows name no run, and no failover is noticed."""

GUARD_RESTARTS = "ALLOCATOR_GUARD_RESTARTS"
"""If set, and not to 0, each start of a server counts as a failover: for those who restore and do not say so."""

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


class Words(NamedTuple):
    """How a database says what its statements need; see `filled`.

    clock: the milliseconds since 1970.
    mends: the statements that remove what makes ids repeat unnoticed: triggers and rules on tables that ids are drawn
        from, and engines without transactions. NULL if there is nothing.
    facts: what else a process asks the server at its start.
    ignore, or_nothing: in an INSERT that does nothing where its key is there, the word after INSERT and the end.
    keep, returning: how a claim tells the value that it has written: by a function, or by the end of the statement.
    lasting: a condition that makes the commit of its statement durable, where a session may be set otherwise.

    The ends of a SELECT that locks rows, while SQLite locks the file:

    update: keeps all others out; it waits for them.
    at_once: as `update`, and leaves out a row that is locked.
    share: keeps changes out: `shards make` waits for what is drawn under the old residue.
    """

    clock: str
    mends: str
    facts: str = ""
    ignore: str = ""
    or_nothing: str = "ON CONFLICT DO NOTHING"
    keep: str = ""
    returning: str = "RETURNING max_value"
    lasting: str = "1 = 1"
    update: str = ""
    at_once: str = ""
    share: str = ""


class Dialect:
    """What all databases have in common."""

    name: ClassVar[str]
    embedded: ClassVar[bool] = False
    """The database is this library's own file, so it makes its schema by itself."""
    rolls_back_by_itself: ClassVar[bool] = False
    """The server may roll back the whole transaction at an error, and begin another one without a word."""
    begin: ClassVar[str] = "BEGIN"
    words: ClassVar[Words]
    tickets: ClassVar[str] = CLAIM
    """How a new database draws tickets: by a claim, or by REPLACE where that is a statement of the server."""

    def engine_args(self, driver: str, timeout: float) -> dict[str, Any]:
        """Arguments of `create_engine`, for waits of `timeout`; the URL's query overrides those for the driver, its
        `connect_args`."""
        raise NotImplementedError

    def on_connect(
        self, engine: Engine, file: str | None, is_given: bool, timeout: float, connection: Any, record: Any
    ) -> None:
        """Prepare a new connection of the driver; `record.info` stays with it. A round trip here is one per connection.

        info: `allocator_run` is an SQL expression for the server run; `allocator_asked` one that asks for all of it, if
        that is longer.
        `dialect` is that of this connection, if it is another one; `warnings` collects those of the verb that runs.

        file: of an embedded database. is_given: the user's engine has opened the connection; what its listener has set
        is committed, since autocommit cannot be set inside its transaction.
        """

    def alone(self, file: str | None, end: float) -> AbstractContextManager[None]:
        """Keep other processes out of the file of an embedded database while a verb runs: its locks can be lost."""
        raise NotImplementedError

    def leaves_open(self, driver_connection: Any) -> bool:
        """Whether the last answer says that a transaction is open. Asks nothing; a driver that cannot tell says no."""
        raise NotImplementedError

    def code(self, error: BaseException) -> str:
        """The driver's code for an error; empty when it has none."""
        return ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        """Lock the schema for one change at a time, in a transaction where DDL has transactions."""
        with transaction(connection, self):
            yield

    def server_runs(self, connection: Connection) -> Iterator[tuple[str, Dialect]]:
        """Expressions for the server run on a connection that somebody else opened, each with the dialect there; the
        first that works is ours."""
        raise NotImplementedError

    def server_run(self, connection: Connection, facts: Any, known: Move) -> tuple[str, Residue]:
        """The server run by these facts: that of the row, `known`, where it is the same. And the auto-increment offset
        and step of a server that is configured as one of several without a cluster."""
        return str(facts.run), ALL

    def find_identity(self, connection: Connection) -> bool:
        """Find what the server does tell about itself, for the whole engine. True if the statement may be retried."""
        return False

    def blind(self, connection: Connection) -> Blind | None:
        """What the failover guard cannot see on this server; None if it sees everything."""
        return None

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        """Run a claim: the end of what is claimed, None if no row matched. `name` is for messages."""
        raise NotImplementedError

    def number_as(self, connection: Connection, residue: Residue) -> None:
        """Set the auto-increment of this session, where the server's own may be that of a replication."""

    def skip_nodes(self, connection: Connection, residue: Residue, count: int) -> None:
        """Skip node numbers above the greater of counter and rows: a row with an explicit number raises both."""
        self.number_as(connection, ALL)
        row = {**SKIPPED, "slot": residue.offset, "slots": residue.step}
        last = connection.execute(node.insert().values(row)).inserted_primary_key
        connection.execute(node.insert().values(row | {"id": (last[0] if last else 0) + count}))

    def counter(self, connection: Connection, schema: str, table_name: str, column_name: str) -> Counter:
        """The counter of a column of the application that numbers rows by itself."""
        raise NotImplementedError


@contextmanager
def transaction(connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Several statements as one, on a connection that otherwise commits each."""
    connection.exec_driver_sql(dialect.begin)
    try:
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        undo(connection)
        raise


def undo(connection: Connection) -> None:
    """Roll back: a later claim inside an open transaction would be served without a commit."""
    if connection.invalidated:
        return
    try:
        connection.exec_driver_sql("ROLLBACK")
    except Exception:  # it had ended by itself, or its connection cannot be trusted
        if getattr(connection.connection.dbapi_connection, "in_transaction", True):
            connection.invalidate()


def guards_restarts() -> bool:
    return os.environ.get(GUARD_RESTARTS, "0") not in {"", "0"}


def run_of(connection: Connection) -> str:
    """An SQL expression for the server run.

    Each statement contains it, because a pooler or proxy may send two statements of one connection to two servers.
    """
    return str(connection.info.get("allocator_run", NOWHERE))


@cache
def filled(statement: str, run: str, words: Words, **parts: str) -> TextClause:
    """A statement in the words of a database; `{run}` is that of `run_of`."""
    return text(statement.strip().format(run=run, **words._asdict(), **parts))


def triggered(name: str, table_name: str) -> SchemaDamaged:
    """MySQL reports no insert id where a trigger fires, whoever may see the trigger."""
    return SchemaDamaged(
        f"{name!r}: the server reported no insert id, as where a table has a trigger; no id was issued; find it with "
        f"SHOW TRIGGERS LIKE '{table_name}', and drop it: DROP TRIGGER name"
    )
