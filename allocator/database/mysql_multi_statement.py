"""Several statements of MySQL's in one message, so that no round trip lies between them.

A process that is stopped between two statements of a transaction (by SIGSTOP, a debugger, a machine that swaps or is
moved) holds the locks of its rows until it goes on, which may be never. The statements of one message run to their end
whoever listens.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

FIRST = "SELECT 1; "
"""SQLAlchemy gives the cursor away when the first statement has no rows, and the answers to the others with it."""
ALLOW = b"\x00\x00"
"""MYSQL_OPTION_MULTI_STATEMENTS_ON, as COM_SET_OPTION takes it."""


class Answer(NamedTuple):
    """To one statement."""

    rows: Sequence[Any]
    found: int
    """How many rows it found or changed."""
    warnings: int
    last_id: int
    """What `LAST_INSERT_ID(…)` was set to by it, out of the OK packet."""


def sent(
    connection: Connection, statements: Sequence[str], parameters: Mapping[str, object], misplaced: Container[str] = ()
) -> list[Answer]:
    """The answers to all of them; the first error ends the message, and an open transaction stays open then.

    misplaced: the codes of a server that another one has followed, which is left then.
    """
    allow(connection)
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
    return Answer(rows, cursor.rowcount, getattr(cursor, "warning_count", 0), cursor.lastrowid or 0)


def allow(connection: Connection) -> None:
    """Once for a connection, which is ours alone; other drivers than PyMySQL allow it anyway, or refuse the words."""
    raw: Any = connection.connection.dbapi_connection
    if connection.info.get("several") or not hasattr(raw, "_execute_command"):
        return
    from pymysql.constants import COMMAND  # type: ignore[import-untyped]

    try:
        raw._execute_command(COMMAND.COM_SET_OPTION, ALLOW)
        raw._read_packet()
    except connection.dialect.loaded_dbapi.Error as error:
        raise wrapped(connection, error, None, ()) from error
    connection.info["several"] = True


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
