"""What the server tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.database.dialect import Blind, Dialect


def fetch_run(connection: Connection, dialect: Dialect, words: str) -> str:
    """The server run by one of `Dialect.runs`."""
    return str(connection.exec_driver_sql(f"SELECT {words}").scalar())


def fetch_blind(connection: Connection, dialect: Dialect) -> Blind | None:
    """What the failover guard cannot see here."""
    return dialect.blind(connection)
