"""SQLAlchemy's dialects, which ask the server about itself when they reflect, and not at the first connect.

Version, isolation level, SQL mode and letter case are up to seven messages, and no statement that draws ids depends on
them. A dialect of one's own and `get_dialect_cls` are SQLAlchemy's documented ways to change `initialize`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import URL, Connection, Inspector, inspect
from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.dialects import registry
from sqlalchemy.engine.default import DefaultDialect

PREFIX = "allocator_"


class Lazy(DefaultDialect):
    """Mixed into the dialect of a database and driver."""

    _is_complete = False

    def create_connect_args(self, url: URL) -> Any:
        return super().create_connect_args(plain(url))

    def on_connect(self) -> Callable[[Any], None] | None:
        """SQLAlchemy sets the names again that PyMySQL has just set."""
        return None if self.driver == "pymysql" else super().on_connect()

    def initialize(self, connection: Connection) -> None:
        """See `complete`."""

    def complete(self, connection: Connection) -> None:
        if not self._is_complete:
            super().initialize(connection)
            self._is_complete = True

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Every statement is its own transaction; on PyMySQL the rollback at return is a round trip."""


class Entry:
    """What SQLAlchemy finds under the name of a lazy dialect."""

    @classmethod
    def get_dialect_cls(cls, url: URL) -> type[SQLDialect]:
        kind: Any = plain(url).get_dialect()
        found: type[SQLDialect] = lazy(kind)
        return found

    @classmethod
    def engine_created(cls, engine: object) -> None:
        """SQLAlchemy calls this for the engine that comes of it."""


@cache
def lazy(kind: Any) -> Any:
    own = {"supports_statement_cache": getattr(kind, "supports_statement_cache", False)}
    return type(f"Lazy{kind.__name__}", (Lazy, kind), own)


def lazy_url(url: URL) -> URL:
    """The same for `create_engine`, with the lazy dialect."""
    named = url.set(drivername=PREFIX + url.drivername)
    registry.register(named.drivername.replace("+", "."), __name__, Entry.__name__)
    return named


def plain(url: URL) -> URL:
    return url.set(drivername=url.drivername.removeprefix(PREFIX))


def complete(connection: Connection) -> None:
    """Ask the server what reflection and migrations depend on, unless that is known."""
    if isinstance(connection.dialect, Lazy):
        connection.dialect.complete(connection)


def inspector_of(connection: Connection) -> Inspector:
    complete(connection)
    return inspect(connection)
