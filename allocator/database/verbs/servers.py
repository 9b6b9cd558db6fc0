"""Which server this is, where it is, and its server run."""

from __future__ import annotations

from sqlalchemy import Connection

from allocator.database.dialect import Blind, Dialect
from allocator.rules.failover import Here


def fetch_identity(connection: Connection, dialect: Dialect) -> str:
    """The server and database that this is."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.server(connection)}").scalar())


def fetch_place(connection: Connection, dialect: Dialect) -> str:
    """Where this runs, exact enough to tell two servers apart that can be reached at one time."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.place(connection)}").scalar())


def fetch_run(connection: Connection, dialect: Dialect, was: str) -> Here:
    """Where we are, held against where a row was written."""
    return dialect.fetch_run(connection, was)


def fetch_blind(connection: Connection, dialect: Dialect) -> Blind | None:
    """What the failover guard cannot see here."""
    return dialect.blind(connection)
