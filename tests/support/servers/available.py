"""Real databases for the tests: from a URL, else Docker, else a throw-away server, else the reason why not.

ALLOCATOR_TEST_POSTGRES_URL    a database that may be used; likewise MYSQL and MARIADB
ALLOCATOR_TEST_POSTGRES_IMAGE  the image for testcontainers
ALLOCATOR_TEST_POSTGRES_BIN    a folder with initdb and postgres, used instead of Docker
ALLOCATOR_TEST_REQUIRE         postgres,mysql: their absence fails the run instead of skipping
"""

import gc
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from tempfile import mkdtemp
from typing import NoReturn

import pytest
from sqlalchemy import Engine, create_engine, make_url

from support.servers.administrator import values
from support.servers.containers import from_container
from support.servers.throwaway import Running, signal_all

KINDS = ("postgres", "mysql", "mariadb")


class Absent(Exception):
    """No server of this kind can be had; the message says why."""


@dataclass
class Server:
    kind: str
    running: Running
    version: str = ""

    @property
    def url(self) -> str:
        return self.running.url

    def ask_version(self) -> None:
        (version,) = values(self.url, "SELECT version()")
        self.version = str(version).split(" (")[0].split(" on ")[0]
        is_mariadb = "mariadb" in self.version.lower()
        if self.kind in {"mysql", "mariadb"} and is_mariadb != (self.kind == "mariadb"):
            raise Absent(f"{self.running.origin} is {self.version}, which is not {self.kind}")

    def database(self, name: str) -> str:
        """The URL of a new, empty database on this server."""
        self.execute(f"CREATE DATABASE {name}")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop(self, name: str) -> None:
        force = " WITH (FORCE)" if self.kind == "postgres" else ""
        self.execute(f"DROP DATABASE IF EXISTS {name}{force}")

    def execute(self, statement: str) -> None:
        """On a connection that is kept: tests make and drop a thousand databases."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql(statement)

    @cached_property
    def engine(self) -> Engine:
        return create_engine(self.url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)


def required() -> set[str]:
    return {kind for kind in os.environ.get("ALLOCATOR_TEST_REQUIRE", "").replace(" ", "").split(",") if kind}


def find(kind: str) -> Server:
    reasons = []
    for way in (from_url, from_container, from_binary):
        try:
            server = Server(kind, way(kind))
        except LookupError as error:
            reasons.append(str(error.args[0]))
            continue
        try:
            server.ask_version()
        except Absent as error:
            server.running.stop()
            reasons.append(str(error))
            continue
        return server
    raise Absent(f"no {kind}: {'; '.join(reasons)}")


def from_url(kind: str) -> Running:
    name = f"ALLOCATOR_TEST_{kind.upper()}_URL"
    url = os.environ.get(name)
    if not url:
        raise LookupError(f"{name} is not set")
    return Running(url, name)


def from_binary(kind: str, options: tuple[str, ...] = ()) -> Running:
    """A throw-away server in a temporary folder."""
    from support.servers.machines import Machine, MariaDB, MySQL, Postgres, made

    types: dict[str, type[Machine]] = {"postgres": Postgres, "mysql": MySQL, "mariadb": MariaDB}
    program = types[kind].program_here()
    extra = tuple(word for word in options if word != "-c")  # which a PostgreSQL gets before each
    machine = made(types[kind](program, Path(mkdtemp(prefix=f"allocator-{kind}-")), extra=extra))
    machine.start()
    assert machine.process is not None
    freeze, thaw = (partial(signal_all, machine.process.pid, number) for number in (SIGSTOP, SIGCONT))
    return Running(machine.url, f"a throw-away {program}", machine.close, freeze, thaw)


@contextmanager
def own(kind: str, *options: str) -> Iterator[str]:
    """The URL of a server that belongs to the caller alone, who may change what is global there.

    options: as its program takes them.
    """
    reasons = []
    for way in (from_binary, from_container) if kind == "postgres" else (from_container, from_binary):
        try:
            running = way(kind, options)
        except LookupError as error:
            reasons.append(str(error.args[0]))
            continue
        try:
            yield running.url
        finally:
            running.stop()
        return
    without(kind, f"no {kind} of our own: {'; '.join(reasons)}")


class Servers:
    """Those of one run, started at most once each, and together."""

    def __init__(self) -> None:
        self.found: dict[str, Server | Absent] = {}

    def start(self, kinds: set[str]) -> None:
        missing = sorted(kinds - self.found.keys())
        with warnings.catch_warnings():  # Docker's client leaves sockets behind when an image is missing
            warnings.simplefilter("ignore", ResourceWarning)
            with ThreadPoolExecutor(len(KINDS)) as pool:
                self.found.update(zip(missing, pool.map(attempt, missing), strict=True))
            gc.collect()

    def get(self, kind: str) -> Server:
        if kind not in self.found:
            self.start({kind})
        server = self.found[kind]
        if isinstance(server, Absent):
            raise server
        return server

    def lines(self) -> list[str]:
        return [
            f"{kind}: {server}"
            if isinstance(server, Absent)
            else f"{kind}: {server.version}, from {server.running.origin}"
            for kind, server in sorted(self.found.items())
        ]

    def stop(self) -> None:
        for server in self.found.values():
            if isinstance(server, Server):
                server.engine.dispose()
                server.running.stop()
        self.found.clear()


SERVERS = Servers()


def server(kind: str) -> Server:
    """The server of a kind, or else a skip that says why; a failure where it is required."""
    try:
        return SERVERS.get(kind)
    except Absent as error:
        without(kind, str(error))


def without(kind: str, why: str) -> NoReturn:
    """Skip, or fail where it is required."""
    if kind in required():
        pytest.fail(f"required by ALLOCATOR_TEST_REQUIRE, but {why}", pytrace=False)
    pytest.skip(why)


def attempt(kind: str) -> Server | Absent:
    try:
        return find(kind)
    except Absent as error:
        return error
