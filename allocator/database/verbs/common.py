"""What the verbs of all nouns need, in the words of the standard; a database that has others says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from sqlalchemy import ColumnElement, Connection, func


class Common:
    begin: ClassVar[str] = "BEGIN"

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.greatest(value, other)

    def see_the_newest(self, connection: Connection) -> None:
        """Let every statement of the next transaction see what was committed before the statement."""

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Several statements as one, on a connection that otherwise commits each."""
        connection.exec_driver_sql(self.begin)
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            self.undo(connection)
            raise

    def undo(self, connection: Connection) -> None:
        """What is claimed on a connection that is still in a transaction would be served without a commit."""
        if connection.invalidated:
            return
        try:
            connection.exec_driver_sql("ROLLBACK")
        except Exception:  # it had ended by itself, or its connection cannot be trusted
            if getattr(connection.connection.dbapi_connection, "in_transaction", True):
                connection.invalidate()
