"""Send several statements to MySQL in one message, with no round trip between them.

A process that is stopped between two statements of a transaction (by SIGSTOP, a debugger, a swapping or migrating
machine) holds its row locks until it continues, which may be never. The statements of one message run to the end
without their client.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

FIRST = "SELECT 1; "
"""SQLAlchemy closes the cursor, and loses the other answers, when the first statement returns no rows."""
FOUND_ROWS, MULTI_STATEMENTS = 1 << 1, 1 << 16
"""Client flags of a connection. SQLAlchemy sets the first; ours must keep it."""


class Answer(NamedTuple):
    """The answer to one statement."""

    rows: Sequence[Any]
    found: int
    """How many rows it found or changed."""
    warnings: int


def is_allowed(connection: Connection) -> bool:
    """Whether the connection has `CLIENT.MULTI_STATEMENTS`: ours do, those of a user's engine may not."""
    flags: int = getattr(connection.connection.dbapi_connection, "client_flag", MULTI_STATEMENTS)
    return bool(flags & MULTI_STATEMENTS)


def send(
    connection: Connection, statements: Sequence[str], parameters: Mapping[str, object], misplaced: Container[str] = ()
) -> list[Answer]:
    """Send statements and return their answers. The first error ends the message and leaves its transaction open.

    misplaced: error codes after which the connection is closed, because another server has taken over.
    """
    if not is_allowed(connection):
        return [one_answer(connection.exec_driver_sql(one, dict(parameters))) for one in statements]
    result = connection.exec_driver_sql(FIRST + "; ".join(statements), dict(parameters))
    cursor: Any = result.cursor
    try:
        answers = [answer(cursor) for _ in iter(cursor.nextset, None)]
    except connection.dialect.loaded_dbapi.Error as error:
        raise wrapped(connection, error, cursor, misplaced) from error
    finally:
        cursor.close()
    return answers


def answer(cursor: Any) -> Answer:
    rows = cursor.fetchall() if cursor.description else ()
    return Answer(rows, cursor.rowcount, getattr(cursor, "warning_count", 0))


def one_answer(result: CursorResult[Any]) -> Answer:
    rows = result.all() if result.returns_rows else ()
    return Answer(rows, result.rowcount, getattr(result.context.cursor, "warning_count", 0))


def wrapped(connection: Connection, error: Exception, cursor: Any, misplaced: Container[str]) -> Exception:
    """Wrap an error as SQLAlchemy does for a first statement: a lost server's connections are not used again."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, cursor)  # type: ignore[arg-type]
    lost = lost or (bool(error.args) and str(error.args[0]) in misplaced)
    if lost:
        connection.engine.pool._invalidate(connection.connection, error)
        connection.invalidate(error)
    base = dialect.loaded_dbapi.Error
    return DBAPIError.instance("", {}, error, base, connection_invalidated=lost, dialect=dialect)
