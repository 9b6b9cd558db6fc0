"""The transaction of a caller, in which numbers without gaps are drawn. It stays open and keeps its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, text

from allocator.database.address import dialect_named, shown
from allocator.database.verbs.gapless_number_rows import NumberDialect, number_dialect
from allocator.errors import InvalidDatabase

COMMITS_EACH = (
    "draw numbers inside a transaction; this connection commits each statement by itself (AUTOCOMMIT), and a number "
    "stays used even if its row is never written; use a Session, or engine.begin()"
)


class Answer(NamedTuple):
    """How many rows a statement changed, and MySQL's LAST_INSERT_ID."""

    rowcount: int
    lastrowid: int


class Caller(Protocol):
    """A connection in the transaction of its owner."""

    numbers: NumberDialect

    @property
    def where(self) -> str:
        """Which database this is, without a password."""

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        """Run a statement with parameters as `:name`. Raises SQLAlchemy's errors."""

    def fetch(self, statement: str, parameters: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """Run a statement that returns rows, likewise."""

    def refuse_more(self) -> None:
        """Let the owner's library refuse all but a rollback: the server has rolled back, and it does not know."""


class Borrowed:
    """The transaction of a SQLAlchemy Session or Connection. Raises `InvalidDatabase` where it has none."""

    def __init__(self, given: Any) -> None:
        self.connection = connection_of(given)
        engine = self.connection.dialect
        dialect = dialect_named(engine.name, "the connection")
        self.numbers = number_dialect(dialect, is_mariadb=bool(getattr(engine, "is_mariadb", False)))
        self._check_transaction()

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

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        result = self.connection.execute(text(statement), parameters)
        return Answer(result.rowcount, self.numbers.lastrowid(result))

    def fetch(self, statement: str, parameters: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        return self.connection.execute(text(statement), parameters).all()

    def refuse_more(self) -> None:
        self.connection.invalidate()


def connection_of(given: Any) -> Connection:
    if isinstance(given, Connection):
        return given
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise InvalidDatabase(
            "numbers are drawn by a function that is not a coroutine: await session.run_sync(numbers.next, scope)"
        )
    if hasattr(given, "get_bind") and hasattr(given, "connection"):
        found: Connection = given.connection()
        return found
    raise InvalidDatabase(
        "numbers are drawn in your own transaction: give the Session or Connection of SQLAlchemy that has it, or "
        f"django.db.connection, got {type(given).__name__}"
    )


def is_one_call_for_all_rows(context: Any) -> bool:
    """Tell whether SQLAlchemy calls a column default once for all rows of the statement of this context.

    It does so for an UPDATE and for an INSERT from a SELECT, also where they are a common table of another statement.
    """
    compiled = context.compiled
    if compiled.update_prefetch and not compiled.insert_prefetch:
        return True
    common = [element.element for element in getattr(compiled, "ctes", None) or ()]
    return any(
        getattr(statement, "is_insert", False) and statement.select is not None
        for statement in (compiled.statement, *common)
    )
