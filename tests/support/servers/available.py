"""Real databases for the tests: from a URL, else Docker, else a throw-away server, else the reason why not.

ALLOCATOR_TEST_POSTGRES_URL    a database that may be used; likewise MYSQL and MARIADB
ALLOCATOR_TEST_POSTGRES_IMAGE  the image for testcontainers
ALLOCATOR_TEST_POSTGRES_BIN    a folder with initdb and postgres, used instead of Docker
ALLOCATOR_TEST_REQUIRE         postgres,mysql: their absence fails the run instead of skipping
"""

import gc
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NoReturn, TypeVar

import pytest
from sqlalchemy import Engine, create_engine, make_url

from support.servers.administrator import values
from support.servers.throwaway import POSTGRES_BIN

KINDS = ("postgres", "mysql", "mariadb")
DATA = {"postgres": "/var/lib/postgresql", "mysql": "/var/lib/mysql", "mariadb": "/var/lib/mysql"}
IMAGES = {"postgres": "postgres:18", "mysql": "mysql:9", "mariadb": "mariadb:11"}
T = TypeVar("T")


@dataclass
class Server:
    """One that runs. origin: where it was found."""

    kind: str
    url: str
    origin: str
    stop: Callable[[], object] = lambda: None
    version: str = ""

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


# -- the ways to get one; each raises LookupError where there is none


def from_url(kind: str) -> Server:
    name = f"ALLOCATOR_TEST_{kind.upper()}_URL"
    url = os.environ.get(name)
    if not url:
        raise LookupError(f"{name} is not set")
    return Server(kind, url, name)


def image_of(kind: str) -> str:
    return os.environ.get(f"ALLOCATOR_TEST_{kind.upper()}_IMAGE", IMAGES[kind])


def from_container(kind: str, options: tuple[str, ...] = ()) -> Server:
    """By testcontainers."""
    from docker.errors import DockerException
    from testcontainers.community.mysql import MySqlContainer
    from testcontainers.community.postgres import PostgresContainer

    if kind == "postgres" and POSTGRES_BIN in os.environ:
        raise LookupError(f"{POSTGRES_BIN} is set")
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # the tests stop what they start
    image, container = image_of(kind), None
    try:
        if kind == "postgres":
            container = PostgresContainer(image, driver="psycopg")
        else:
            container = MySqlContainer(image, dialect="pymysql", username="root")
        if options:
            container.with_command(" ".join(options))
        if "ALLOCATOR_TEST_ON_DISK" not in os.environ:
            container.with_tmpfs_mount(DATA[kind])  # thrown away anyway
        container.start()
    except (DockerException, OSError) as error:
        if container:
            container.get_docker_client().client.close()
        why = (str(error).splitlines() or [type(error).__name__])[0][:100]
        raise LookupError(f"testcontainers cannot start {image} ({why})") from error

    def remove() -> None:
        container.stop()
        container.get_docker_client().client.close()

    url = container.get_connection_url()
    url = url.replace("mysql+", "mariadb+", 1) if kind == "mariadb" else url
    return Server(kind, url, f"testcontainers {image}", remove)


def from_binary(kind: str, options: tuple[str, ...] = ()) -> Server:
    """A throw-away PostgreSQL in a temporary folder."""
    from support.servers.machines import Postgres, new

    machine = new(Postgres, options[1::2])  # before each of which is a `-c`
    machine.start()
    return Server(kind, machine.url, f"a throw-away {machine.program}", machine.close)


def first(kind: str, ways: Iterable[Callable[[], T]]) -> T:
    """What the first way gives that finds something. Raises LookupError with all reasons why not."""
    reasons = []
    for way in ways:
        try:
            return way()
        except LookupError as error:
            reasons.append(str(error.args[0]))
    raise LookupError(f"no {kind}: {'; '.join(reasons)}")


def checked(way: Callable[[str], Server], kind: str) -> Server:
    """What a way finds, if it is of this kind."""
    server = way(kind)
    (version,) = values(server.url, "SELECT version()")
    server.version = str(version).split(" (")[0].split(" on ")[0]
    if kind in {"mysql", "mariadb"} and ("mariadb" in server.version.lower()) != (kind == "mariadb"):
        server.stop()
        raise LookupError(f"{server.origin} is {server.version}, which is not {kind}")
    return server


# -- for a test of its own, and for a whole run


@contextmanager
def own(kind: str, *options: str) -> Iterator[str]:
    """The URL of a server that belongs to the caller alone, who may change what is global there.

    options: as its program takes them.
    """
    ways = (from_binary, from_container) if kind == "postgres" else (from_container,)
    server = or_without(kind, lambda: first(kind, [partial(way, kind, options) for way in ways]))
    try:
        yield server.url
    finally:
        server.stop()


class Servers:
    """Those of one run, started at most once each, and together."""

    def __init__(self) -> None:
        self.found: dict[str, Server | LookupError] = {}

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
        if isinstance(server, LookupError):
            raise server
        return server

    def lines(self) -> list[str]:
        return [
            f"{kind}: {server.version}, from {server.origin}" if isinstance(server, Server) else f"{kind}: {server}"
            for kind, server in sorted(self.found.items())
        ]

    def stop(self) -> None:
        for server in self.found.values():
            if isinstance(server, Server):
                server.engine.dispose()
                server.stop()
        self.found.clear()


SERVERS = Servers()


def attempt(kind: str) -> Server | LookupError:
    try:
        ways = (from_url, from_container, *(from_binary,) * (kind == "postgres"))
        return first(kind, [partial(checked, way, kind) for way in ways])
    except LookupError as error:
        return error


def server(kind: str) -> Server:
    """The server of a kind, or else a skip that says why; a failure where it is required."""
    return or_without(kind, lambda: SERVERS.get(kind))


def or_without(kind: str, make: Callable[[], T]) -> T:
    """What is made, or a skip that says why it cannot be had; a failure where it is required."""
    try:
        return make()
    except LookupError as error:
        without(kind, str(error))


def without(kind: str, why: str) -> NoReturn:
    """Skip, or fail where it is required."""
    if kind in os.environ.get("ALLOCATOR_TEST_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"required by ALLOCATOR_TEST_REQUIRE, but {why}", pytrace=False)
    pytest.skip(why)
