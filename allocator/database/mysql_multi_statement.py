"""Several statements of MySQL's in one message, so that no round trip lies between them.

A process that is stopped between two statements of a transaction (by SIGSTOP, a debugger, a machine that swaps or is
moved) holds the locks of its rows until it goes on, which may be never. The statements of one message run to their end
whoever listens.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

FIRST = "SELECT 1; "
"""SQLAlchemy gives the cursor away when the first statement has no rows, and the answers to the others with it."""
FOUND_ROWS, MULTI_STATEMENTS = 1 << 1, 1 << 16
"""Of the client flags of a connection: SQLAlchemy sets the first, which ours must not take away."""


class Answer(NamedTuple):
    """To one statement."""

    rows: Sequence[Any]
    found: int
    """How many rows it found or changed."""
    warnings: int


def is_allowed(connection: Connection) -> bool:
    """Whether it was opened with `CLIENT.MULTI_STATEMENTS`, as ours are; that of a user's own engine may not be."""
    flags: int = getattr(connection.connection.dbapi_connection, "client_flag", MULTI_STATEMENTS)
    return bool(flags & MULTI_STATEMENTS)


def send(
    connection: Connection, statements: Sequence[str], parameters: Mapping[str, object], misplaced: Container[str] = ()
) -> list[Answer]:
    """The answers to all of them; the first error ends the message, and an open transaction stays open then.

    misplaced: the codes of a server that another one has followed, which is left then.
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
    """As SQLAlchemy does it for the first statement: of a server that is lost, no connection is used again."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, cursor)  # type: ignore[arg-type]
    lost = lost or (bool(error.args) and str(error.args[0]) in misplaced)
    if lost:
        connection.engine.pool._invalidate(connection.connection, error)
        connection.invalidate(error)
    base = dialect.loaded_dbapi.Error
    return DBAPIError.instance("", {}, error, base, connection_invalidated=lost, dialect=dialect)
