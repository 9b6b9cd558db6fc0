"""The transaction of a caller, in which numbers without gaps are drawn: borrowed, and left as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy import BigInteger, Connection, TextClause, bindparam, text

from allocator.database.address import dialect_named, shown
from allocator.database.dialect import Dialect
from allocator.database.number_dialects import NumberDialect, number_dialect
from allocator.errors import InvalidDatabase

WHOLE = ("count", "first", "most", "n")
"""The parameters that are numbers of 64 bits; asyncpg would send small ones as narrower."""

COMMITS_EACH = (
    "numbers are drawn inside of a transaction, and this connection commits each statement by itself (AUTOCOMMIT): a "
    "number would stay given where its row is not written; use a Session, or engine.begin()"
)


class Answer(NamedTuple):
    """What a statement returned: its rows, or how many it changed, and MySQL's LAST_INSERT_ID."""

    rows: Sequence[Sequence[Any]] = ()
    rowcount: int = 0
    lastrowid: int = 0


class Caller(Protocol):
    """A connection in the transaction of its owner."""

    dialect: Dialect
    numbers: NumberDialect
    where: str
    """Which database this is, without a password."""

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        """Run a statement with parameters as `:name`. Raises SQLAlchemy's errors."""


class Borrowed:
    """The transaction of a SQLAlchemy Session or Connection. Raises `InvalidDatabase` where it has none."""

    def __init__(self, given: Any) -> None:
        self.connection = connection_of(given)
        engine = self.connection.dialect
        self.where = shown(self.connection.engine.url)
        self.dialect = dialect_named(engine.name, self.where)
        self.numbers = number_dialect(self.dialect, is_mariadb=bool(getattr(engine, "is_mariadb", False)))
        self._check_transaction()

    def _check_transaction(self) -> None:
        if self.connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise InvalidDatabase(COMMITS_EACH)
        if not self.connection.in_transaction():
            self.connection.begin()  # as its first statement would; a listener may say BEGIN now
        pooled = self.connection.connection
        if self.numbers.commits_each(pooled.dbapi_connection, pooled.driver_connection):
            raise InvalidDatabase(COMMITS_EACH)

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        result = self.connection.execute(typed(statement), parameters)
        if result.returns_rows:
            return Answer(result.all())
        return Answer((), result.rowcount, self.numbers.lastrowid(result))


@cache
def typed(statement: str) -> TextClause:
    made = text(statement)
    return made.bindparams(*(bindparam(name, type_=BigInteger) for name in WHOLE if name in made._bindparams))


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
