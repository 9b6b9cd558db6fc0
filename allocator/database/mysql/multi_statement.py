"""Send several statements to MySQL in one message, with no round trip between them.

A process that is stopped between two statements of a transaction (by SIGSTOP, a debugger, a swapping or migrating
machine) holds its row locks until it continues, which may be never. The statements of one message run to the end
without their client.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult

from allocator.database.driver_connection import wrapped
from allocator.database.verbs.claims import CLAIMABLE

FIRST = "SELECT 1; "
"""SQLAlchemy closes the cursor, and loses the other answers, when the first statement returns no rows."""
FOUND_ROWS, MULTI_STATEMENTS = 1 << 1, 1 << 16
"""Client flags of a connection. SQLAlchemy sets the first; ours must keep it."""


class Answer(NamedTuple):
    """The answer to one statement."""

    rows: Sequence[Any]
    found: int
    warnings: int
    last_id: int


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
        result.close()
        lost = bool(error.args) and str(error.args[0]) in misplaced
        raise wrapped(connection, error, cursor, lost=lost) from error
    result.close()
    return answers


def answer(cursor: Any) -> Answer:
    rows = cursor.fetchall() if cursor.description else ()
    return Answer(rows, cursor.rowcount, getattr(cursor, "warning_count", 0), cursor.lastrowid)


def one_answer(result: CursorResult[Any]) -> Answer:
    rows = result.all() if result.returns_rows else ()
    cursor: Any = result.context.cursor
    return Answer(rows, result.rowcount, getattr(cursor, "warning_count", 0), cursor.lastrowid)


NAME = "name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.name', span BIGINT PATH '$.span'"
OF = "/*!80000 OF s */"
"""MariaDB refuses it, MySQL needs it."""
FREE = (
    "SELECT JSON_ARRAYAGG(JSON_OBJECT('name', w.name, 'span', w.span)) INTO @allocator_claimed "
    f"FROM JSON_TABLE(%(wanted)s, '$[*]' COLUMNS ({NAME}, seen BIGINT PATH '$.seen', "
    "residue_offset BIGINT PATH '$.residue_offset', residue_step BIGINT PATH '$.residue_step')) w "
    f"STRAIGHT_JOIN allocator_segment s WHERE {CLAIMABLE} FOR UPDATE {OF} SKIP LOCKED"
)
CLAIMED = f"JSON_TABLE(@allocator_claimed, '$[*]' COLUMNS ({NAME})) w STRAIGHT_JOIN allocator_segment s"
RAISE = (
    f"UPDATE {CLAIMED} SET s.max_value = LAST_INSERT_ID(s.max_value + w.span), s.claimed_at = {{clock}} "
    "WHERE s.tag = w.name"
)
READ = f"SELECT s.tag, s.max_value FROM {CLAIMED} WHERE s.tag = w.name"
CLAIM_BATCH = ("START TRANSACTION", FREE, RAISE, READ, "COMMIT")
"""Lock what is free, raise it, read it again: MySQL has no UPDATE that returns rows."""
