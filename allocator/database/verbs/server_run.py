"""Which run of which server this is: what the statements of a claim hold against the epoch of the row.

It is asked in the statement itself, since a pooler or proxy may lead two statements of one connection to two servers.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Connection

from allocator.database.verbs.common import Common
from allocator.rules.failover import Here, plain

NOWHERE = "''"
"""The run of an engine that cannot say what it is: the epoch of its rows stays empty, and nothing is guarded."""


class EpochVerbs(Common):
    clock: ClassVar[str]
    """An SQL expression for the seconds since 1970."""

    def run_here(self, connection: Connection) -> str:
        """An SQL expression for the run of the server."""
        return str(connection.info.get("run", NOWHERE))

    def is_here(self, connection: Connection) -> str:
        """A condition: the row was written on this run."""
        return f"epoch = {self.run_here(connection)}"

    def server_here(self, connection: Connection) -> str:
        """An SQL expression for what of the run a row is held against when it crosses."""
        return self.run_here(connection)

    def look_here(self, connection: Connection, was: str) -> Here:
        """Where we are, held against where a row was written."""
        run, at = connection.exec_driver_sql(f"SELECT {self.run_here(connection)}, {self.clock}").one()
        return plain(was, str(run), int(at))
