"""The one place where a driver's error becomes one of ours."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.database.dialect import Dialect
from allocator.errors import (
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidDatabase,
    MaxValueWentBack,
    NumberBusy,
    NumberConflict,
    SchemaDamaged,
    SchemaOutOfDate,
)

ADVICE: dict[type[AllocatorError], str] = {
    DatabaseUnavailable: "{where} is not available: {words}",
    DatabaseRefused: "{where} refuses: {words}; check user, password, database name and rights",
    SchemaOutOfDate: "{where} lacks a table or column of the allocator: {words}; run: allocator db upgrade",
    MaxValueWentBack: "{where} gave a number again: {words}; its counter was set back, raise it above the greatest one",
    Exhausted: "{where} has given its last number: {words}",
    SchemaDamaged: "{where} holds a table that was altered by hand: {words}; see: allocator db check",
}

GUARDED = {"postgresql": "ID001", "mysql": "1644", "sqlite": "SQLITE_CONSTRAINT_TRIGGER"}
"""The error codes that the triggers of `guard.py` raise."""
MISSTATED, NO_SCHEMA, UNPROVEN, READ_ONLY = "misstated", "3F000", "unproven", "25006"
NO_FUNCTION = "42883"
LACKING = ("55000", "0A000", NO_FUNCTION)
OF_CODE = {
    MISSTATED: "{where} cannot be used: {words}; check the URL and its arguments",
    READ_ONLY: "{where} is read-only: {words}; use the primary, or if this is it: ALTER ROLE name SET "
    "default_transaction_read_only = off",
    NO_SCHEMA: "{where} refuses: {words}; check that the search_path of the user or the URL names a schema that exists",
    **dict.fromkeys(LACKING, "{where} refuses: {words}; this server lacks what the statement needs: allocator doctor"),
    UNPROVEN: "{where} is named by the fleet, and its server does not log in by SCRAM: {words}; give its URL too",
    **dict.fromkeys(
        GUARDED.values(),
        "{where} refuses: {words}, and a trigger stopped the statement; raise numbers only, or drop the guard first: "
        "the lines with DROP of allocator db guard --sql",
    ),
}
"""Advice by error code. MISSTATED is no server's code: the driver refused an argument."""

FILE_REFUSED = "{where} refuses: {words}; check that the folder exists, and who may read and write there"

LOCKED = (
    "{where} is locked by another process, or by another connection of this one: waited {waited:.3g} seconds; end the "
    "transaction that is open there (fuser and the path list the processes), or give the ids a file of their own"
)


def translate(error: SQLAlchemyError, dialect: Dialect, where: str, waited: float) -> AllocatorError:
    code = code_of(error, dialect)
    # The pool of a file has one connection: a caller that times out there waits behind a claim that waits for the lock.
    if dialect.embedded and (code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or isinstance(error, PoolTimeout)):
        return DatabaseUnavailable(LOCKED.format(where=where, waited=waited))
    kind = dialect.errors.get(code) or dialect.errors.get(code[:2], DatabaseUnavailable)
    advice = FILE_REFUSED if dialect.embedded and kind is DatabaseRefused else OF_CODE.get(code, ADVICE[kind])
    return kind(advice.format(where=where, words=words_of(error)))


def unforeseen(error: Exception, where: str) -> AllocatorError:
    """Not a database error: the driver refused an argument of the URL, or a hook of the user's failed."""
    return DatabaseRefused(f"{where} cannot be used: {type(error).__name__}: {error}; check the URL and its arguments")


def code_of(error: SQLAlchemyError, dialect: Dialect) -> str:
    return dialect.code(error.orig) if isinstance(error, DBAPIError) and error.orig else ""


def words_of(error: SQLAlchemyError) -> str:
    """The driver's own first line, without SQLAlchemy's statement and parameters."""
    if isinstance(error, PoolTimeout):
        return "all connections of the allocator were busy"
    words = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    return words.strip().partition("\n")[0] or type(error).__name__


def is_contended(error: SQLAlchemyError, dialect: Dialect) -> bool:
    """A deadlock or the like: the statement had no effect and may run again."""
    return code_of(error, dialect) in dialect.contended


def is_forbidden(error: SQLAlchemyError, dialect: Dialect) -> bool:
    """Whether the user lacks a right."""
    return code_of(error, dialect) in dialect.forbidden


def lacks_function(error: SQLAlchemyError, dialect: Dialect) -> bool:
    return code_of(error, dialect) == NO_FUNCTION


def is_stale(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost, as after a restart of the server."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


HELD = frozenset({"55P03", "1205", "3572"})
MOVED = "SQLITE_BUSY_SNAPSHOT"
NO_MORE = frozenset({"22003", "23514", "1264", "1690", "3819", "4025", "SQLITE_CONSTRAINT_CHECK"})

NUMBER_BUSY = (
    "another transaction has drawn numbers of {place} and has not ended{holder}; waited {waited:.3g} seconds; roll "
    "back and run the whole transaction again"
)
FILE_BUSY = (
    "another transaction is writing to {where}, and SQLite has one writer at a time: no number of {place} after "
    "{waited:.3g} seconds; roll back and run the whole transaction again, begun with BEGIN IMMEDIATE if it reads first"
)
DEADLOCK = (
    "deadlock while drawing a number of {place}: {words}; roll back and run the whole transaction again; to avoid it, "
    "draw numbers last, and those of several scopes in one order"
)
DRAWN_MEANWHILE = (
    "another transaction has drawn a number of {place} since this one began, which its isolation level refuses: "
    "{words}; roll back and run the whole transaction again, or use READ COMMITTED, which waits instead"
)
ABORTED = "this transaction has failed before, and no number of {place} can be drawn in it: {words}; roll it back"
NO_WRITES = (
    "no number of {place} can be drawn here: {where} is a replica, or the transaction is read-only: {words}; use the "
    "primary, and a transaction that may write"
)
OF_DRAW: dict[str, tuple[type[AllocatorError], str]] = {
    **dict.fromkeys(("40P01", "1213"), (NumberConflict, DEADLOCK)),
    "1180": (NumberConflict, DEADLOCK),  # where Group Replication's applier takes the row
    **dict.fromkeys(("40001", "1020", "3101", MOVED), (NumberConflict, DRAWN_MEANWHILE)),
    "25P02": (InvalidDatabase, ABORTED),
    **dict.fromkeys((READ_ONLY, "1290", "1792", "1836", "SQLITE_READONLY"), (DatabaseRefused, NO_WRITES)),
}
"""The error of ours, and its message, by error code."""


def is_held(error: SQLAlchemyError, dialect: Dialect) -> bool:
    """Whether another transaction has the lock that a number needs."""
    code = code_of(error, dialect)
    return code in HELD or (code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) and code != MOVED)


def translate_drawn(
    error: SQLAlchemyError, dialect: Dialect, where: str, place: str, waited: float, holder: str
) -> AllocatorError:
    """As `translate`, for a number of `place`, which another session may hold."""
    code = code_of(error, dialect)
    if code in NO_MORE:
        from allocator.schemes.gapless_numbers import out_of_numbers  # few processes draw such numbers

        return out_of_numbers(place)
    if code in OF_DRAW:
        kind, words = OF_DRAW[code]
    elif is_held(error, dialect):
        kind, words = NumberBusy, FILE_BUSY if dialect.embedded else NUMBER_BUSY
    else:
        return translate(error, dialect, where, waited)
    told = f" ({holder})" if holder else ""
    return kind(words.format(where=where, place=place, waited=waited, words=words_of(error), holder=told))
