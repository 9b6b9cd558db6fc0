"""What a driver's error means for a number that was drawn in a caller's transaction."""

from __future__ import annotations

from sqlalchemy.exc import OperationalError

from allocator.database.address import dialect_of
from allocator.database.driver_errors import translate_drawn
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidDatabase,
    NumberBusy,
    NumberConflict,
    SchemaOutOfDate,
)


class Failed(Exception):
    """As of the drivers: MySQL's has its number first, the others a code of their own."""

    def __init__(self, code: str) -> None:
        super().__init__(
            int(code) if code.isdecimal() and len(code) == 4 else "words of the driver on allocator_number"
        )
        self.sqlstate = self.sqlite_errorname = code


def test_what_it_means_and_what_to_do():
    for name, code, kind, words in [
        ("postgresql", "55P03", NumberBusy, "another transaction has drawn numbers of 'invoice'"),
        ("mysql", "1205", NumberBusy, "waited 2 seconds; roll back and run the whole transaction again"),
        ("postgresql", "57014", NumberBusy, "the server ended the wait for a number of 'invoice'"),
        ("mysql", "1969", NumberBusy, "roll back and run the whole transaction again"),
        ("sqlite", "SQLITE_BUSY", NumberBusy, "SQLite has one writer at a time"),
        ("sqlite", "SQLITE_LOCKED_SHAREDCACHE", NumberBusy, "BEGIN IMMEDIATE"),
        ("postgresql", "40P01", NumberConflict, "draw numbers last, and those of several scopes in one order"),
        ("mysql", "1213", NumberConflict, "deadlock while drawing a number of 'invoice'"),
        ("mysql", "1206", NumberConflict, "rolled back this whole transaction"),
        ("postgresql", "40001", NumberConflict, "or use READ COMMITTED, which waits instead"),
        ("mysql", "1020", NumberConflict, "since this one began"),
        ("mysql", "3101", NumberConflict, "run the whole transaction again"),
        ("mysql", "1180", NumberConflict, "run the whole transaction again"),
        ("sqlite", "SQLITE_BUSY_SNAPSHOT", NumberConflict, "since this one began"),
        ("postgresql", "25P02", InvalidDatabase, "this transaction has failed before"),
        ("postgresql", "25006", DatabaseRefused, "is a replica, or the transaction is read-only"),
        ("mysql", "1290", DatabaseRefused, "use the primary"),
        ("mysql", "1792", DatabaseRefused, "use the primary"),
        ("sqlite", "SQLITE_READONLY", DatabaseRefused, "use the primary"),
        ("mysql", "1690", Exhausted, "fewer numbers of 'invoice' are left"),
        ("sqlite", "SQLITE_CONSTRAINT_CHECK", Exhausted, "fewer numbers of 'invoice' are left"),
        ("postgresql", "42P01", SchemaOutOfDate, "run: python manage.py migrate, with"),
        ("mysql", "2013", DatabaseUnavailable, "here is not available"),
    ]:
        error = OperationalError("INSERT", {}, Failed(code))
        found = translate_drawn(error, dialect_of(name), "here", "'invoice'", 2.0)

        assert type(found) is kind, (name, code)
        assert words in str(found), (name, code)
