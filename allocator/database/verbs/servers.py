"""The identity, the place and the run of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.database.dialect import Blind, Dialect
    from allocator.rules.failover import Here


def fetch_identity(connection: Connection, dialect: Dialect) -> str:
    """The identity of the server and its database."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.server(connection)}").scalar())


def fetch_place(connection: Connection, dialect: Dialect) -> str:
    """The place of the server, which no other server has at the same time."""
    return str(connection.exec_driver_sql(f"SELECT {dialect.place(connection)}").scalar())


def fetch_run(connection: Connection, dialect: Dialect, was: str) -> Here:
    """The server run, compared with the one that wrote a row."""
    asked = ", ".join(f"{words} AS {name}" for name, words in dialect.facts(connection).items())
    return dialect.here(connection, connection.exec_driver_sql(f"SELECT {asked}").one(), was)


def fetch_own_run(connection: Connection, dialect: Dialect, words: str) -> str:
    """The server run by one of `Dialect.runs`."""
    return str(connection.exec_driver_sql(f"SELECT {words}").scalar())


def fetch_blind(connection: Connection, dialect: Dialect) -> Blind | None:
    """What the failover guard cannot see here."""
    return dialect.blind(connection)
