"""The databases of a run: those of the user, a file, or the servers of the tests."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from sqlalchemy import Engine, create_engine, make_url, text

from allocator.database.address import address_of
from allocator.database.store import Database
from allocator.errors import InvalidDatabase

RUN = token_hex(6)
"""Part of the names of the tags and tables of this run, which it deletes at the end."""


@dataclass
class Place:
    """A database with the tables. `name` is for reports, `version` is that of its server."""

    name: str
    url: str
    version: str = ""

    @property
    def backend(self) -> str:
        return make_url(self.url).get_backend_name()

    def engine(self) -> Engine:
        return create_engine(self.url, isolation_level="AUTOCOMMIT", pool_size=16)

    def tag(self, name: str) -> str:
        return f"allocator-bench.{RUN}.{name}"


@contextmanager
def place(url: str, name: str) -> Iterator[Place]:
    """Open a database; restore it at the end, except for the claimed ids."""
    with closing(Database(url, timeout=60)) as database:
        if database.dialect.embedded and database.address.file is None:
            raise InvalidDatabase("a database in memory is one connection, which cannot be compared; give a file")
        database.check_schema()
    found = Place(name, url)
    engine = found.engine()
    with engine.connect() as connection:
        word = "sqlite_version()" if found.backend == "sqlite" else "version()"
        told = re.search(r"\d[\w.-]*", str(connection.scalar(text(f"SELECT {word}"))))
        found.version = told.group() if told else ""
    try:
        yield found
    finally:
        with engine.connect() as connection:
            mine = {"mine": f"allocator-bench.{RUN}.%"}
            connection.execute(text("DELETE FROM allocator_segment WHERE tag LIKE :mine"), mine)
        engine.dispose()


@contextmanager
def embedded() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder, place(f"sqlite:///{folder}/ids.db", "SQLite") as found:
        yield found


@contextmanager
def places(urls: Sequence[str], servers: bool) -> Iterator[list[Place]]:
    with ExitStack() as stack:
        found = [stack.enter_context(place(url, address_of(url).url.get_backend_name())) for url in urls]
        if not found:
            found.append(stack.enter_context(embedded()))
        if servers:
            found += stack.enter_context(of_the_tests())
        yield found


@contextmanager
def of_the_tests() -> Iterator[list[Place]]:
    """Servers with a new database each: from a URL, a container, or a binary on this machine."""
    os.environ.setdefault("ALLOCATOR_TEST_ON_DISK", "1")  # a commit on disk is most of the cost of a claim
    available: Any = importlib.import_module("support.servers.available")
    kinds = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
    available.SERVERS.start(set(kinds))
    name = f"allocator_bench_{RUN}"
    with ExitStack() as stack:
        stack.callback(available.SERVERS.stop)
        found = []
        for kind, word in kinds.items():
            server = available.SERVERS.found[kind]
            if isinstance(server, available.Absent):
                print(f"{word} is left out: {server}")
                continue
            url = server.database(name)
            stack.callback(server.drop, name)
            upgrade(url)
            found.append(stack.enter_context(place(url, word)))
        yield found


def upgrade(url: str) -> None:
    with closing(Database(url, timeout=60)) as database:
        database.upgrade_schema()
