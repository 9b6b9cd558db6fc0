"""The databases of a run: those of the user, a file, or the servers of the tests."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from secrets import token_hex
from typing import Any, NamedTuple

from sqlalchemy import Engine, create_engine, text

from allocator.database.address import address_of
from allocator.database.store import Database
from allocator.errors import InvalidDatabase

RUN = token_hex(6)
"""Part of the names of the tags and tables of this run, which it deletes at the end."""


class Place(NamedTuple):
    """A database with the tables. `name` is for reports. kind: mysql and mariadb differ. engine: in autocommit."""

    name: str
    url: str
    engine: Engine
    kind: str
    version: str

    def tag(self, name: str) -> str:
        return f"allocator-bench.{RUN}.{name}"


@contextmanager
def place(url: str, name: str) -> Iterator[Place]:
    """Open a database; restore it at the end, except for the claimed ids."""
    with closing(Database(url, timeout=60)) as database:
        if database.dialect.embedded and database.address.file is None:
            raise InvalidDatabase("a database in memory is one connection, which cannot be compared; give a file")
        database.snapshot()
    engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=16)
    try:
        with engine.connect() as connection:
            kind = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name
            word = "sqlite_version()" if kind == "sqlite" else "version()"
            told = re.search(r"\d[\w.-]*", str(connection.scalar(text(f"SELECT {word}"))))
        yield Place(name, url, engine, kind, told.group() if told else "")
    finally:
        with engine.connect() as connection:
            mine = {"mine": f"allocator-bench.{RUN}.%"}
            connection.execute(text("DELETE FROM allocator_segment WHERE tag LIKE :mine"), mine)
        engine.dispose()


@contextmanager
def places(urls: Sequence[str], servers: bool) -> Iterator[list[Place]]:
    """Those of the user, else a file, and the servers of the tests, if they are wanted."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        named = [(url, address_of(url).url.get_backend_name()) for url in urls] or [
            (f"sqlite:///{folder}/ids.db", "SQLite")
        ]
        if servers:
            named += of_the_tests(stack)
        yield [stack.enter_context(place(url, name)) for url, name in named]


def of_the_tests(stack: ExitStack) -> Iterator[tuple[str, str]]:
    """Servers with a new database each: from a URL, a container, or a binary on this machine."""
    os.environ.setdefault("ALLOCATOR_TEST_ON_DISK", "1")  # a commit on disk is most of the cost of a claim
    available: Any = importlib.import_module("support.servers.available")
    kinds = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
    stack.callback(available.SERVERS.stop)
    available.SERVERS.start(set(kinds))
    for kind, word in kinds.items():
        server = available.SERVERS.found[kind]
        if isinstance(server, LookupError):
            print(f"{word} is left out: {server}")
            continue
        url = server.database(f"allocator_bench_{RUN}")
        stack.callback(server.drop, f"allocator_bench_{RUN}")
        with closing(Database(url, timeout=60)) as database:
            database.upgrade_schema()
        yield url, word
