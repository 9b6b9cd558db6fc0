"""Databases that a run makes under names of its own process, gives the schema, and drops."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from alembic import command

from allocator.database import schema
from allocator.database.store import Database
from support.servers.available import SERVERS, server

T = TypeVar("T")


class Databases:
    """Those of one user; no two processes share a name, since they may share a server."""

    def __init__(self) -> None:
        self._made: list[tuple[str, str]] = []

    def new(self, kind: str, name: object) -> str:
        """The URL of an empty one on the server of a kind; the test is skipped where there is none."""
        full = f"allocator_test_{os.getpid()}_{name}"
        url = server(kind).database(full)
        self._made.append((kind, full))
        return url

    def drop(self) -> None:
        """All of them; what else is connected is cut off where the database can do so."""
        while self._made:
            kind, name = self._made.pop()
            SERVERS.get(kind).drop(name)


@contextmanager
def databases() -> Iterator[Databases]:
    made = Databases()
    try:
        yield made
    finally:
        made.drop()


@contextmanager
def one_of_each(name: str, folder: Path, make: Callable[[str], T]) -> Iterator[Callable[[str], T]]:
    """Gives for a kind what `make` makes of the URL of an empty database, the same one each time."""
    with databases() as found:

        @cache
        def get(kind: str) -> T:
            return make(f"sqlite:///{folder}/ids.db" if kind == "sqlite" else found.new(kind, name))

        yield get


def with_schema(url: str) -> str:
    """Of a database that may be busy for a while; the same URL."""
    database = Database(url, timeout=60)
    database.upgrade_schema()
    database.close()
    return url


def migrate(url: str, direction: str, to: str) -> None:
    """As Alembic does: "upgrade" or "downgrade", to a revision."""
    config = schema.alembic_config()
    with (
        closing(Database(url, timeout=60)) as database,
        database.engine.connect() as connection,
        database.dialect.schema_change(connection, 60),
    ):
        config.attributes[schema.CONNECTION] = connection
        getattr(command, direction)(config, to)


def problems(url: str) -> list[str]:
    """Of the tables, as `allocator db check` tells."""
    with closing(Database(url)) as database:
        found: list[str] = database.run(schema.problems, "here")
        return found
