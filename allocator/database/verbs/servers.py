"""Which server this is, where it is, and which run of it."""

from __future__ import annotations

from sqlalchemy import Connection

from allocator.database.dialect import NOWHERE, Dialect, run_of
from allocator.rules.failover import Here
from allocator.schemes.ticket import Numbering


def fetch_identity(connection: Connection, dialect: Dialect) -> str:
    """The server and database that this is."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.server(connection)}").scalar())


def fetch_place(connection: Connection, dialect: Dialect) -> str:
    """Where this runs, exact enough to tell two servers apart that can be reached at one time."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.place(connection)}").scalar())


def fetch_home(connection: Connection, dialect: Dialect) -> str:
    """The identity of the server, which a restart does not change."""
    if run_of(connection) == NOWHERE:
        return ""
    return str(connection.exec_driver_sql(f"SELECT {dialect.home(connection)}").scalar())


def fetch_run(connection: Connection, dialect: Dialect, was: str) -> Here:
    """Where we are, held against where a row was written."""
    return dialect.fetch_run(connection, was)


def fetch_numbering(connection: Connection, dialect: Dialect) -> Numbering | None:
    """Offset and step that the server is set to, as one of several that are no cluster."""
    return dialect.server_numbering(connection)
