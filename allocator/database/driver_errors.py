"""The one place where a driver's error becomes one of ours: a table of what the codes mean, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

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

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect


class Meaning(NamedTuple):
    """A row of a table of errors; the first one that applies is used."""

    sentence: str
    codes: str
    """Codes of all drivers; no two drivers share one. A SQLSTATE that ends in 000 stands for its class."""
    words: str = ""
    """A pattern of messages whose code is in no row: a connection that PostgreSQL refuses comes without a code."""
    only: str = ""
    """A pattern that the message and its statement must match, where the code alone does not tell."""


Meanings = Mapping[type[AllocatorError], Sequence[Meaning]]

FILE_BUSY_CODES = "SQLITE_BUSY SQLITE_BUSY_RECOVERY SQLITE_BUSY_TIMEOUT"
FILE_LOCKED_CODES = "SQLITE_LOCKED SQLITE_LOCKED_SHAREDCACHE SQLITE_LOCKED_VTAB"
TOO_GREAT_CODES = "22003 23514 1264 1690 3819 4025 SQLITE_CONSTRAINT_CHECK"
"""A column or its CHECK refuses the value; for a drawn number this means that none is left."""

CONTENDED = frozenset(f"40001 40P01 55P03 1020 1205 1213 3101 3572 SQLITE_BUSY_SNAPSHOT {FILE_BUSY_CODES}".split())
"""The same statement may run again, as after deadlocks."""
READ_ONLY = "25006"
MISPLACED = frozenset({READ_ONLY, "1047", "1180", "1290", "1792", "1836", "3100"})
"""The server cannot write now, while another of its cluster can: its connections are closed."""
REFUSALS = frozenset({"55000", "0A000", "42501", "42883"})
"""A server refuses a function that tells which one it is, or lacks it. 55000 is of Aurora, which names `wal_level`."""
MISSING = frozenset({"42P01", "42703", "1054", "1146", "SQLITE_ERROR"})
"""A table or column is missing; SQLite has one code for this and for errors of syntax."""
FORBIDDEN = frozenset({"42501", "1142", "1143"})
NO_FUNCTION = frozenset({"42883"})
"""No such function for arguments of these types, as PostgreSQL has no max() of booleans."""

OUR_TABLE = r"^.*\ballocator_\w+\b(?!\W?\.)"  # and no schema of that name
LOCKED = (
    "{where} is locked by another process, or by another connection of this one: waited {waited:.3g} seconds; end the "
    "transaction that is open there (fuser and the path list the processes), or give the ids a file of their own"
)
UNAVAILABLE = "{where} is not available: {words}"
LACKS_OURS = "{where} lacks a table or column of the allocator: {words}; run: {upgrade}"
LACKS_ANOTHER = (
    "{where} lacks what is not the allocator's: {words}; create it, or look for the statement, trigger or view that "
    "names it"
)

MEANINGS: Meanings = {
    SchemaOutOfDate: (
        Meaning(LACKS_OURS, "42P01 1146 SQLITE_ERROR", only=OUR_TABLE),
        Meaning(LACKS_OURS, "42703 1054", only="allocator_"),
        Meaning(LACKS_OURS, "SQLITE_ERROR", only=r"^no such column[\s\S]*allocator_"),
    ),
    SchemaDamaged: (
        Meaning("{where} holds a table that was altered by hand: {words}; see: allocator db check", TOO_GREAT_CODES),
    ),
    MaxValueWentBack: (
        Meaning(
            "{where} gave a number again: {words}; its counter was set back, raise it above the greatest; or a trigger "
            "changed the number: run allocator db check",
            "23505 1062 SQLITE_CONSTRAINT_PRIMARYKEY SQLITE_CONSTRAINT_UNIQUE",
        ),
        Meaning(
            "{where} refuses: {words}, and a trigger stopped the statement; raise numbers only, or drop the guard "
            "first: DROP TRIGGER for each allocator_guard_… on allocator_segment",
            "ID001 SQLITE_CONSTRAINT_TRIGGER",
        ),
    ),
    Exhausted: (Meaning("{where} has given its last number: {words}", "2200H 167 SQLITE_MISMATCH"),),
    # until somebody changes it
    DatabaseRefused: (
        Meaning(
            "{where} refuses the login: {words}; check user and password, and whether the user may connect from this "
            "host, and without TLS",
            "28000 28P01 1045 1698",
            r"authentication failed|no password supplied|role .* does not exist|no pg_hba.conf entry",
        ),
        Meaning(
            "{where}: there is no such database, or the user has no right to it: {words}; create it, or grant rights",
            "3D000 1044 1046 1049 1109",
            r"database .* does not exist|no such database",
        ),
        Meaning(
            "{where} refuses a setting of the session: {words}; correct it where it is made: URL, engine or user",
            "22023 1115 1193 1229 1231 1232 1238 1273 1298",
            r"value for parameter|configuration parameter|permission denied to set parameter",
        ),
        Meaning(
            "{where}: {words}; give the user a policy there, or: ALTER TABLE … DISABLE ROW LEVEL SECURITY",
            "42501",
            only="row-level security",
        ),
        Meaning(
            "{where}: the user lacks a right: {words}; grant it, or print all GRANTs that are needed: allocator doctor",
            "42501 1142 1143 1227 1370",
            r"permission denied|not permitted to log in",
        ),
        Meaning(
            "{where} writes a binary log of statements, which a claim under READ COMMITTED cannot be in: {words}; "
            "SET GLOBAL binlog_format = 'ROW', and in the server's configuration",
            "1665",
        ),
        Meaning(
            "{where} is a pooler that refuses an argument of the connection: {words}; name it in "
            "ignore_startup_parameters there, or leave it out and set it for the user",
            "",
            r"unsupported startup parameter",
        ),
        Meaning(
            "{where}: client and server do not agree on TLS: {words}; correct the arguments of the URL, or the server",
            "3159",
            r"(?i)certificate|not support SSL|SSL is required|SSL required",
        ),
        Meaning(
            "{where} does not speak the protocol of such a database: {words}; check host and port",
            "",
            r"response to SSL negotiation|expected authentication request|expected 0$",
        ),
        Meaning(
            "{where} cannot be used: {words}; check the URL and its arguments",
            "",
            r"invalid connection option|bad value for|invalid (\w+ value|port)|definition of service .* not found"
            r"|authentication method requirement",
        ),
        Meaning(
            "{where} refuses: {words}; check that the search_path of the user or the URL names a schema that exists",
            "3F000",
        ),
        Meaning(
            "{where} refuses: {words}; this server lacks what the statement needs: allocator doctor",
            "0A000 42883 55000 1235 1305",
        ),
        Meaning(
            "{where} refuses: {words}; check that its folder exists, and that this user may write both",
            "SQLITE_CANTOPEN SQLITE_READONLY",
        ),
        Meaning(
            "{where} is damaged, or no SQLite database: {words}; restore a backup, and run: allocator db mark-restored",
            "SQLITE_CORRUPT SQLITE_NOTADB",
        ),
        Meaning(LACKS_ANOTHER, "42P01 42703 1054 1146 1356"),
        Meaning(LACKS_ANOTHER, "SQLITE_ERROR", only=r"^no such (table|column)"),
        Meaning(
            "{where} refuses: {words}",
            "23000 42000 P0000 1048 1064 1129 1130 1251 1364 1449 1820 1862 2059 3118 4151 SQLITE_ERROR",
        ),
    ),
    # which may pass
    DatabaseUnavailable: (
        Meaning(LOCKED, f"SQLITE_BUSY_SNAPSHOT {FILE_BUSY_CODES} {FILE_LOCKED_CODES}"),
        Meaning(
            "{where}: other transactions hold what this one needs: {words}; end those that stay open, and retry",
            "40001 40P01 55P03 1020 1205 1213 3101",
        ),
        Meaning(
            "{where} ended the statement: {words}; retry, or raise the timeout of the user or server",
            "57014 1317 1969 3024",
        ),
        Meaning(
            "{where} has no connection left: {words}; raise that limit, or run fewer processes",
            "53300 1040 1203 1226",
            r"too many (connections|clients)|connection slots are reserved|no more connections allowed",
        ),
        Meaning("{where} has no space left: {words}; free some", "53100 3 1021 1114 SQLITE_FULL", r"No space left"),
        Meaning(
            "{where}: no address is known for the host: {words}; check its name, or the DNS",
            "",
            r"resolve host|translate host name|Name or service not known|name resolution|No address associated",
        ),
        Meaning(
            "{where} is read-only: {words}; use the primary, or if this is it: ALTER ROLE name SET "
            "default_transaction_read_only = off (MySQL and MariaDB: SET GLOBAL read_only = OFF)",
            "25006 1290 1792 1836",
        ),
        Meaning("{where}: the lock of the counter of tickets, or of nodes, was not free: {words}; try again", "1467"),
    ),
}

AGAIN = "; roll back and run the whole transaction again"
NUMBER_BUSY = "another transaction has drawn numbers of {place} and has not ended; waited {waited:.3g} seconds" + AGAIN
CUT_OFF = "the server ended the wait for a number of {place}: {words}" + AGAIN
FILE_BUSY = (
    "another transaction is writing to {where}, and SQLite has one writer at a time: no number of {place} after "
    "{waited:.3g} seconds" + AGAIN + ", begun with BEGIN IMMEDIATE if it reads first"
)
DEADLOCK = (
    "deadlock while drawing a number of {place}: {words}" + AGAIN + "; to avoid it, draw numbers last, and those of "
    "several scopes in one order"
)
DRAWN_MEANWHILE = (
    "another transaction has drawn a number of {place} since this one began, which its isolation level refuses: "
    "{words}" + AGAIN + ", or use READ COMMITTED, which waits instead"
)
ROLLED_BACK = "the server rolled back this whole transaction while it drew a number of {place}: {words}" + AGAIN
ABORTED = "this transaction has failed before, and no number of {place} can be drawn in it: {words}; roll it back"
NO_WRITES = (
    "no number of {place} can be drawn here: {where} is a replica, or the transaction is read-only: {words}; use the "
    "primary, and a transaction that may write"
)
TAKEN = (
    "a row has the next number of {place} already: {words}; to find all such rows, audit the column: allocator numbers "
    "audit --help"
)
DRAWN: Meanings = {
    MaxValueWentBack: (Meaning(TAKEN, "23505 1062 SQLITE_CONSTRAINT_UNIQUE"),),
    NumberBusy: (
        Meaning(NUMBER_BUSY, "55P03 1205"),
        Meaning(CUT_OFF, "57014 1317 1969 3024"),  # as by statement_timeout
        Meaning(FILE_BUSY, f"{FILE_BUSY_CODES} {FILE_LOCKED_CODES}"),
    ),
    NumberConflict: (
        Meaning(DEADLOCK, "40P01 1213 1180"),  # 1180: Group Replication's applier takes the row
        Meaning(DRAWN_MEANWHILE, "40001 1020 3101 SQLITE_BUSY_SNAPSHOT"),
        Meaning(ROLLED_BACK, "1206"),  # no memory for locks
    ),
    InvalidDatabase: (Meaning(ABORTED, "25P02"),),
    DatabaseRefused: (Meaning(NO_WRITES, "25006 1290 1792 1836 SQLITE_READONLY"),),
}
"""What comes before `MEANINGS` where a number is drawn in a caller's transaction, which only the caller can repeat."""


def meaning_of(table: Meanings, code: str, message: str) -> tuple[type[AllocatorError], str] | None:
    """The error and its sentence: by the code, else by its class, else by the words of the message."""
    rows = [(kind, row) for kind, meanings in table.items() for row in meanings]
    for sought in (code, f"{code[:-3]}000"):
        for kind, row in rows:
            if sought in row.codes.split() and re.search(row.only, message):
                return kind, row.sentence
    return next(((kind, row.sentence) for kind, row in rows if row.words and re.search(row.words, message)), None)


def upgrade_of(where: str) -> str:
    """The command that makes the tables where an application keeps its rows: its URL is known, or Django's."""
    if "://" in where:
        # The command takes no driver for asyncio, nor its arguments.
        url = re.sub(r"^(\w+)\+\w*(?:aio|async)\w*([^?]*).*", r"\1\2", where)
        return f"allocator db upgrade --url {quote(url)}"
    return "python manage.py migrate, with allocator.integrations.django in INSTALLED_APPS"


def translate(
    error: SQLAlchemyError, dialect: Dialect, where: str, waited: float, upgrade: str = "allocator db upgrade"
) -> AllocatorError:
    words = words_of(error)
    message = f"{words}\n{getattr(error, 'statement', None) or ''}"
    meaning = meaning_of(MEANINGS, code_of(error, dialect), message)
    if dialect.embedded and isinstance(error, PoolTimeout):
        meaning = DatabaseUnavailable, LOCKED  # from `SQLite.alone`, or waiting for the one connection in memory
    kind, sentence = meaning or (DatabaseUnavailable, UNAVAILABLE)
    return kind(sentence.format(where=where, words=words, waited=waited, upgrade=upgrade))


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
        return "all connections of the pool were busy"
    words = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    first, *others = words.strip().splitlines() or [type(error).__name__]
    return " ".join([first, *others]) if first.endswith(":") else first  # of several addresses, one line each


def has_code(error: SQLAlchemyError, codes: Container[str], dialect: Dialect) -> bool:
    return code_of(error, dialect) in codes


def is_contended(error: SQLAlchemyError, dialect: Dialect) -> bool:
    """A deadlock or the like: the statement had no effect and may run again."""
    return has_code(error, CONTENDED, dialect)


@contextmanager
def meaning(meant: AllocatorError, codes: Container[str], dialect: Dialect) -> Iterator[None]:
    """Raise `meant` for an error with one of these codes: the statement knows more than the code tells."""
    try:
        yield
    except DBAPIError as error:
        if has_code(error, codes, dialect):
            raise meant from error
        raise


def is_stale(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost, as after a restart of the server."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_rolled_back(error: SQLAlchemyError, dialect: Dialect, at_timeout: Callable[[], bool]) -> bool:
    """Whether the server has rolled back the whole transaction; `at_timeout` asks whether it is set so."""
    code = code_of(error, dialect)
    return code in {"1020", "1206", "1213"} or (code == "1205" and at_timeout())


def translate_drawn(
    error: SQLAlchemyError, dialect: Dialect, where: str, place: str, waited: float, *, is_over: bool = False
) -> AllocatorError:
    """As `translate`, for a number of `place`; `is_over`: the server has rolled back the whole transaction."""
    code, words = code_of(error, dialect), words_of(error)
    if code in TOO_GREAT_CODES.split():
        from allocator.schemes.gapless_numbers import out_of_numbers  # few processes draw such numbers

        return out_of_numbers(place)
    meaning = meaning_of(DRAWN, code, words)
    if meaning is None:
        return translate(error, dialect, where, waited, upgrade_of(where))
    kind, sentence = (NumberConflict, ROLLED_BACK) if is_over and meaning[0] is NumberBusy else meaning
    return kind(sentence.format(where=where, place=place, waited=waited, words=words))
