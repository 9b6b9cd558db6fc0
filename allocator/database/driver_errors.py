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
    MaxValueWentBack,
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
"""What the triggers of `guard.py` end a statement with."""
MISSTATED, NO_SCHEMA, UNPROVEN, READ_ONLY = "misstated", "3F000", "unproven", "25006"
LACKING = ("55000", "0A000", "42883")
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
"""Advice that is more exact than that of the kind. The first is no code of a server: its driver refused an argument."""

FILE_REFUSED = "{where} refuses: {words}; check that the folder exists, and who may read and write there"

LOCKED = (
    "{where} is locked by another process, or by another connection of this one: waited {waited:.3g} seconds; end the "
    "transaction that is open there (fuser and the path list the processes), or give the ids a file of their own"
)


def translate(error: SQLAlchemyError, dialect: Dialect, where: str, waited: float) -> AllocatorError:
    code = code_of(error, dialect)
    # The pool of a file is one connection: who waits for that in vain waits behind a claim that waits for the lock.
    if dialect.embedded and (code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or isinstance(error, PoolTimeout)):
        return DatabaseUnavailable(LOCKED.format(where=where, waited=waited))
    kind = dialect.errors.get(code) or dialect.errors.get(code[:2], DatabaseUnavailable)
    advice = FILE_REFUSED if dialect.embedded and kind is DatabaseRefused else OF_CODE.get(code, ADVICE[kind])
    return kind(advice.format(where=where, words=words_of(error)))


def unforeseen(error: Exception, where: str) -> AllocatorError:
    """No database error: an argument in the URL that the driver does not take, or a hook of the user's."""
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
    """Deadlocks and the like: the statement did nothing, and may simply be run again."""
    return code_of(error, dialect) in dialect.contended


def is_stale(error: SQLAlchemyError) -> bool:
    """The connection was lost, as when the server was restarted since it was opened."""
    return isinstance(error, DBAPIError) and error.connection_invalidated
