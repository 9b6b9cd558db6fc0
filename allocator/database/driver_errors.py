"""The one place where a driver's error becomes one of ours."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from allocator.errors import (
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    MaxValueWentBack,
    NumberBusy,
    NumberConflict,
    SchemaDamaged,
    SchemaOutOfDate,
)

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect


class ErrorCodes(NamedTuple):
    """What a driver's error codes mean: each database has its own, in `dialect.py` of its folder."""

    errors: Mapping[str, type[AllocatorError]] = {}
    """Codes, or the first two characters of several. Any other code is `DatabaseUnavailable`: try again later."""
    advice: Mapping[str, str] = {}
    """What to say for a code, where the advice of its error would say less."""
    of_draw: Mapping[str, tuple[type[AllocatorError], str]] = {}
    """The error and its message where a number is drawn in a caller's transaction, which only the caller can repeat."""
    locked: frozenset[str] = frozenset()
    """Another transaction has the lock that the statement needs. `of_draw` says it first where waiting is no use."""
    rolled_back: frozenset[str] = frozenset()
    """The server has rolled back the whole transaction, and begins a new one by itself."""
    timed_out: frozenset[str] = frozenset()
    """The same, if the server is set so."""
    out_of_range: frozenset[str] = frozenset()
    """A column or its CHECK refuses the value; for a drawn number this means that none is left."""
    contended: frozenset[str] = frozenset()
    """The same statement may run again, as after deadlocks."""
    misplaced: frozenset[str] = frozenset()
    """The server cannot write now, while another of its cluster can: its connections are closed."""
    forbidden: frozenset[str] = frozenset()
    no_function: frozenset[str] = frozenset()
    """No such function for arguments of these types, as PostgreSQL has no max() of booleans."""


ADVICE: dict[type[AllocatorError], str] = {
    DatabaseUnavailable: "{where} is not available: {words}",
    DatabaseRefused: "{where} refuses: {words}; check user, password, database name and rights",
    SchemaOutOfDate: "{where} lacks a table or column of the allocator: {words}; run: allocator db upgrade",
    MaxValueWentBack: "{where} gave a number again: {words}; its counter was set back, raise it above the greatest; "
    "or a trigger changed the number: run allocator db check",
    Exhausted: "{where} has given its last number: {words}",
    SchemaDamaged: "{where} holds a table that was altered by hand: {words}; see: allocator db check",
}

GUARD_FIRED = (
    "{where} refuses: {words}, and a trigger stopped the statement; raise numbers only, or drop the guard first: "
    "DROP TRIGGER for each allocator_guard_… on allocator_segment"
)

LOCKED = (
    "{where} is locked by another process, or by another connection of this one: waited {waited:.3g} seconds; end the "
    "transaction that is open there (fuser and the path list the processes), or give the ids a file of their own"
)


def translate(error: SQLAlchemyError, dialect: Dialect, where: str, waited: float) -> AllocatorError:
    code, codes = code_of(error, dialect), dialect.codes
    # The pool of a file has one connection: a caller that times out there waits behind a claim that waits for the lock.
    if dialect.embedded and (code in codes.locked or isinstance(error, PoolTimeout)):
        return DatabaseUnavailable(LOCKED.format(where=where, waited=waited))
    kind = codes.errors.get(code) or codes.errors.get(code[:2], DatabaseUnavailable)
    return kind(codes.advice.get(code, ADVICE[kind]).format(where=where, words=words_of(error)))


def unforeseen(error: Exception, where: str) -> AllocatorError:
    """Not a database error: the driver refused an argument of the URL, or a hook of the user's failed."""
    return DatabaseRefused(f"{where} cannot be used: {type(error).__name__}: {error}; check the URL and its arguments")


def is_answer(error: BaseException) -> bool:
    """Whether a verb failed by an error of the database, or by a rule of ours: its statements have ended."""
    if isinstance(error, StatementError):
        return isinstance(error, DBAPIError)
    return isinstance(error, SQLAlchemyError | AllocatorError)


def as_raised(error: BaseException) -> BaseException:
    """The exception itself where SQLAlchemy has wrapped one that is none of the driver's."""
    return error if is_answer(error) else getattr(error, "orig", None) or error


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
    return code_of(error, dialect) in dialect.codes.contended


def is_forbidden(error: SQLAlchemyError, dialect: Dialect) -> bool:
    """Whether the user lacks a right."""
    return code_of(error, dialect) in dialect.codes.forbidden


@contextmanager
def meaning(meant: AllocatorError, codes: Container[str], dialect: Dialect) -> Iterator[None]:
    """Raise `meant` for an error with one of these codes: the statement knows more than the code tells."""
    try:
        yield
    except DBAPIError as error:
        if code_of(error, dialect) in codes:
            raise meant from error
        raise


def is_stale(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost, as after a restart of the server."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


NUMBER_BUSY = (
    "another transaction has drawn numbers of {place} and has not ended; waited {waited:.3g} seconds; roll back "
    "and run the whole transaction again"
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
ROLLED_BACK = (
    "the server rolled back this whole transaction while it drew a number of {place}: {words}; roll back and run "
    "the whole transaction again"
)
ABORTED = "this transaction has failed before, and no number of {place} can be drawn in it: {words}; roll it back"
NO_WRITES = (
    "no number of {place} can be drawn here: {where} is a replica, or the transaction is read-only: {words}; use the "
    "primary, and a transaction that may write"
)


def is_rolled_back(error: SQLAlchemyError, dialect: Dialect, at_timeout: Callable[[], bool]) -> bool:
    """Whether the server has rolled back the whole transaction; `at_timeout` asks whether it is set so."""
    code, codes = code_of(error, dialect), dialect.codes
    return code in codes.rolled_back or (code in codes.timed_out and at_timeout())


def translate_drawn(
    error: SQLAlchemyError, dialect: Dialect, where: str, place: str, waited: float, *, is_over: bool = False
) -> AllocatorError:
    """As `translate`, for a number of `place`; `is_over`: the server has rolled back the whole transaction."""
    code, codes = code_of(error, dialect), dialect.codes
    if code in codes.out_of_range:
        from allocator.schemes.gapless_numbers import out_of_numbers  # few processes draw such numbers

        return out_of_numbers(place)
    if code in codes.of_draw:
        kind, words = codes.of_draw[code]
    elif is_over:
        kind, words = NumberConflict, ROLLED_BACK
    elif code in codes.locked:
        kind, words = NumberBusy, FILE_BUSY if dialect.embedded else NUMBER_BUSY
    else:
        return translate(error, dialect, where, waited)
    return kind(words.format(where=where, place=place, waited=waited, words=words_of(error)))
