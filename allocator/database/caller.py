"""The transaction of a caller, in which numbers without gaps are drawn. It stays open and keeps its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Executable, text
from sqlalchemy.exc import InvalidRequestError, MissingGreenlet, SQLAlchemyError, UnboundExecutionError

from allocator.database.address import dialect_named, shown
from allocator.database.driver_errors import translate, upgrade_of, words_of
from allocator.database.verbs.gapless_number_rows import NumberDialect, number_dialect
from allocator.errors import AllocatorError, InvalidDatabase

COMMITS_EACH = (
    "draw numbers inside a transaction; this connection commits each statement by itself (AUTOCOMMIT), and a number "
    "stays used even if its row is never written; use a Session, or engine.begin()"
)


BY_ASYNCIO = "with asyncio use await session.run_sync(feed.assign), or waiting.assign"
STILL_OPEN = "numbers for waiting rows are drawn after the commit, and a transaction is still open"


class Caller(Protocol):
    """A connection in the transaction of its owner."""

    numbers: NumberDialect

    @property
    def where(self) -> str:
        """Which database this is, without a password."""

    def run(self, statement: str, parameters: Mapping[str, object]) -> Any:
        """Run a statement with parameters as `:name`, and return its cursor. Raises SQLAlchemy's errors."""

    def select(self, statement: Executable) -> Sequence[Sequence[Any]]:
        """Run a SELECT of SQLAlchemy, for which columns have types."""

    def update(self, statement: Executable) -> int:
        """Run an UPDATE of SQLAlchemy, and return how many rows matched."""

    def refuse_more(self) -> None:
        """Let the owner's library refuse all but a rollback: the server has rolled back, and it does not know."""


class Borrowed:
    """The transaction of a SQLAlchemy Session or Connection. Raises `InvalidDatabase` where it has none."""

    def __init__(self, given: Any) -> None:
        began = monotonic()
        try:
            self.connection = connection_of(given)
            engine = self.connection.dialect
            dialect = dialect_named(engine.name, "the connection")
            self.numbers = number_dialect(dialect, is_mariadb=bool(getattr(engine, "is_mariadb", False)))
            self._check_transaction()
        except MissingGreenlet:
            raise
        except InvalidRequestError as error:  # as of a session whose transaction has failed, or without a bind
            raise InvalidDatabase(f"no number can be drawn here: {words_of(error)}") from error
        except SQLAlchemyError as error:
            raise meant(error, (given.get_bind() if hasattr(given, "get_bind") else given).engine, began) from error

    def see_each_commit(self) -> None:
        """Make the transaction READ COMMITTED, unless it began before, as that which a test rolls back at its end."""
        if self.numbers.settles and not self.numbers.dialect.leaves_open(self.connection.connection.driver_connection):
            self.connection.exec_driver_sql(self.numbers.settles)

    @property
    def where(self) -> str:
        return shown(self.connection.engine.url)

    def _check_transaction(self) -> None:
        if self.connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise InvalidDatabase(COMMITS_EACH)
        if not self.connection.in_transaction():
            self.connection.begin()  # as its first statement would; a listener may say BEGIN now
        pooled = self.connection.connection
        if self.numbers.commits_each(pooled.dbapi_connection, pooled.driver_connection):
            raise InvalidDatabase(COMMITS_EACH)

    def run(self, statement: str, parameters: Mapping[str, object]) -> Any:
        return self.connection.execute(text(statement), parameters)

    def select(self, statement: Executable) -> Sequence[Sequence[Any]]:
        return self.connection.execute(statement).all()

    def update(self, statement: Executable) -> int:
        return int(self.connection.execute(statement).rowcount)

    def refuse_more(self) -> None:
        self.connection.invalidate()


@contextmanager
def own_transaction(given: Any) -> Iterator[Borrowed]:
    """A transaction that begins and commits here, on an Engine or what else an application connects by.

    given: an Engine, a sessionmaker, or a Session or Connection that is in no transaction. Each statement sees all
    earlier commits, whatever the application has set. Raises the error that the database's error means.
    """
    made = given() if callable(given) else given
    is_session = hasattr(made, "get_bind") and not hasattr(made, "sync_session")
    if not is_session and not isinstance(made, Engine | Connection):
        raise InvalidDatabase(
            f"give a SQLAlchemy Engine, sessionmaker, Session or Connection, or django.db.connection; {BY_ASYNCIO}; "
            f"got {type(given).__name__}"
        )
    if not isinstance(made, Engine) and made.in_transaction():
        raise InvalidDatabase(f"{STILL_OPEN}, as by a read after the commit; commit it, or give the Engine")
    try:
        engine, began = (made.get_bind() if is_session else made).engine, monotonic()
    except UnboundExecutionError as error:
        raise InvalidDatabase("this session chooses a database by the class; give the Engine of the rows") from error
    # a scoped_session keeps its Session
    is_ours = is_session and callable(given) and not hasattr(given, "get_bind")
    try:
        with made if is_ours else nullcontext(), made.begin() as begun:
            caller = Borrowed(begun if isinstance(made, Engine) else made)
            caller.see_each_commit()
            yield caller
    except MissingGreenlet as error:
        raise InvalidDatabase(f"this connection is one of asyncio; {BY_ASYNCIO}") from error
    except SQLAlchemyError as error:
        raise meant(error, engine, began) from error


def meant(error: SQLAlchemyError, engine: Engine, began: float) -> AllocatorError:
    """The error that a database's error means, on an engine of the application."""
    where, dialect = shown(engine.url), dialect_named(engine.dialect.name, "the connection")
    return translate(error, dialect, where, monotonic() - began, upgrade_of(where))


def connection_of(given: Any) -> Connection:
    if isinstance(given, Connection):
        return given
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise InvalidDatabase(
            "numbers are drawn by a function that is not a coroutine: await session.run_sync(numbers.next, scope)"
        )
    if hasattr(given, "get_bind") and hasattr(given, "connection"):
        try:
            found: Connection | None = given.connection()
        except UnboundExecutionError:  # it has no database for what has no class
            if not engines_of(given):
                raise
            found = None
        if found is None or engines_of(given) - {found.engine}:
            raise InvalidDatabase(
                "this session has several databases, each with a transaction and counters of its own; name the one of "
                "the row: numbers.next(session.connection(bind_arguments={'mapper': Bill})); assign takes its Engine"
            )
        return found
    raise InvalidDatabase(
        "numbers are drawn in your own transaction: give the Session or Connection of SQLAlchemy that has it, or "
        f"django.db.connection, got {type(given).__name__}"
    )


def engines_of(session: Any) -> set[Engine]:
    """The engines among which a session chooses by the class: its own binds, and those of Flask-SQLAlchemy."""
    session = session.registry() if hasattr(session, "registry") else session  # of a scoped_session
    binds = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})
    engines = getattr(getattr(session, "_db", None), "engines", {})
    return {one.engine for one in (*binds.values(), *engines.values())}
