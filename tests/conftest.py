"""Fixtures that every kind of test shares; see `support/`."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy import Engine, create_engine, make_url
from support.applications.faces import FACES, PATIENT, Faces
from support.servers.administrator import execute
from support.servers.available import KINDS, SERVERS
from support.servers.databases import databases, one_of_each, with_schema
from support.servers.fleets import made
from support.service.served import Served

from allocator import Allocator
from allocator.database.store import Database
from allocator.database.tables import metadata

os.environ["SSL_CERT_FILE"] = os.devnull
"""Where it names all that a system trusts, PyMySQL reads that for each connection: 20 ms, and nothing here needs it."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Images often set it. Each process that a test starts would then compile SQLAlchemy, which takes a second."""

for _name in [name for name in os.environ if name.startswith("ALLOCATOR_")]:
    if not _name.startswith(("ALLOCATOR_TEST_", "ALLOCATOR_MUTANT")):
        del os.environ[_name]
"""The database or the service of whoever runs the tests: they would draw ids from it."""

hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")
"""On a busy machine an example may take any time."""

pytest_plugins = ["support.verdict"]
DATABASES = ("sqlite", *KINDS)
numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: what no change waits for")
    config.addinivalue_line("markers", "rule(number): of the promise; see tests/RULES.md")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the servers that this run needs, together; where several processes test, each has its own."""
    if session.config.getoption("collectonly"):
        return
    if needed := {kind for item in session.items for kind in KINDS if {kind, "mixed"} & {*texts(item)}}:
        SERVERS.start(needed)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["servers"] = SERVERS.lines()
    gc.collect()
    gc.freeze()  # eight thousand tests: a look through them takes seconds on a busy machine, in the middle of a call


def pytest_report_collectionfinish() -> list[str]:
    """The header names the servers."""
    return SERVERS.lines()


named: dict[str, None] = {}
"""By the processes that have tested."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    named.update(dict.fromkeys(getattr(node, "workeroutput", {}).get("servers", ())))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in named:
        terminalreporter.write_line(line)


def texts(item: pytest.Item) -> tuple[str, ...]:
    """The parameters of a test that are texts, such as its database and its face."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return tuple(value for value in params if isinstance(value, str))


def pytest_unconfigure() -> None:
    SERVERS.stop()


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    """The databases, one after the other."""
    return str(request.param)


@pytest.fixture
def new_database(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes an empty database of a kind and returns its URL; dropped after the test."""
    with databases() as made:

        def make(kind: str) -> str:
            number = next(numbers)
            return f"sqlite:///{tmp_path}/allocator_test_{number}.db" if kind == "sqlite" else made.new(kind, number)

        yield make


@pytest.fixture
def empty(kind: str, new_database: Callable[[str], str]) -> str:
    """The URL of an empty database."""
    return new_database(kind)


@pytest.fixture
def fresh(empty: str) -> str:
    """The URL of a database of this test alone, with the schema."""
    return with_schema(empty)


@pytest.fixture
def ids(fresh: str) -> Iterator[Allocator]:
    """An allocator on a database of this test alone."""
    with Allocator(fresh, timeout=PATIENT) as made:
        yield made


@pytest.fixture
def database(fresh: str) -> Iterator[Database]:
    """A database of this test alone, as the verbs use it."""
    with closing(Database(fresh)) as made:
        yield made


@pytest.fixture
def rows(kind: str, fresh: str, new_database: Callable[[str], str]) -> str:
    """Where an application keeps its rows: beside the ids on a server, in a file of its own on SQLite."""
    return new_database(kind) if kind == "sqlite" else fresh


@pytest.fixture
def engine(rows: str) -> Iterator[Engine]:
    """Of the application."""
    made = create_engine(rows)
    yield made
    made.dispose()


@pytest.fixture
def url(kind: str, shared_database: Callable[[str], str]) -> str:
    """The URL of a database with the schema, shared by the tests of a run: use the fixture `tag`."""
    return shared_database(kind)


@pytest.fixture(scope="session")
def shared_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    with one_of_each("shared", tmp_path_factory.mktemp("shared"), with_schema) as get:
        yield get


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """The address of a service on an embedded database, shared by the tests of a run."""
    running: list[Served] = []

    def get() -> str:
        if not running:
            running.append(Served(f"sqlite:///{tmp_path_factory.mktemp('served')}/ids.db"))
        return running[0].address

    yield get
    for served in running:
        served.close()


@pytest.fixture(scope="module")
def served(shared_database: Callable[[str], str]) -> Iterator[Callable[..., Served]]:
    """Services before the shared databases, one for each kind and its options, shared by the tests of a file."""
    made: dict[tuple[str, ...], Served] = {}

    def get(kind: str, *options: str) -> Served:
        if (kind, *options) not in made:
            made[kind, *options] = Served(shared_database(kind), options=options)
        return made[kind, *options]

    yield get
    for found in made.values():
        found.close()


@pytest.fixture(params=[*DATABASES, "service"])
def place(
    request: pytest.FixtureRequest, shared_database: Callable[[str], str], shared_service: Callable[[], str]
) -> str:
    """Wherever ids can come from: a database, or a service before one."""
    return shared_service() if request.param == "service" else shared_database(str(request.param))


@pytest.fixture
def tag() -> str:
    """A tag that no other test uses."""
    return f"tag-{next(numbers)}"


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Iterator[Faces]:
    """Makes allocators of either face."""
    with Faces(request.param) as faces:
        yield faces


FLEETS = (*DATABASES, "mixed")
MIXED = ("postgres", "sqlite", "mysql", "mariadb")


@pytest.fixture(params=FLEETS)
def fleet_kind(request: pytest.FixtureRequest) -> str:
    """The databases of a fleet: all of one kind, or a mixture."""
    return str(request.param)


@pytest.fixture
def shards(fleet_kind: str, shard_pool: Pool, tmp_path: Path) -> Callable[..., list[str]]:
    """Gives the URLs of so many databases with the schema, and nothing in them."""
    used: dict[str, int] = {}

    def get(count: int) -> list[str]:
        kinds = itertools.cycle(MIXED if fleet_kind == "mixed" else [fleet_kind])
        return [one(kind) for kind in itertools.islice(kinds, count)]

    def one(kind: str) -> str:
        used[kind] = used.get(kind, 0) + 1
        if kind == "sqlite":
            return with_schema(f"sqlite:///{tmp_path}/shard{used[kind]}.db")
        return shard_pool(kind, used[kind])

    return get


@pytest.fixture
def fleet(shards: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Gives the URLs of a fleet of so many databases, each with its slot."""
    return lambda count, slots=0: made(shards(count), slots)


Pool = Callable[[str, int], str]


@pytest.fixture(scope="session")
def shard_pool() -> Iterator[Pool]:
    """Databases of servers that are emptied and used again, which is quicker than to make them."""
    made: dict[tuple[str, int], str] = {}
    with databases() as found:

        def get(kind: str, number: int) -> str:
            if (kind, number) in made:
                empty_tables(made[kind, number])
            else:
                made[kind, number] = with_schema(found.new(kind, f"shard{number}"))
            return made[kind, number]

        yield get


RESTARTED = "ALTER TABLE allocator_node ALTER COLUMN id RESTART WITH 1"
"""A counter that PostgreSQL keeps when it empties the table."""


def empty_tables(url: str) -> None:
    statements = [f"TRUNCATE TABLE {table.name}" for table in metadata.sorted_tables]
    if make_url(url).get_backend_name() == "postgresql":
        statements.append(RESTARTED)
    execute(url, *statements)
    with_schema(url)  # writes the row again


@pytest.fixture(autouse=True)
def quiet_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a test configures, as `allocator serve` does, ends with the test."""
    loggers = [logging.getLogger(name) for name in ("allocator", None)]
    kept = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    caplog.set_level(logging.DEBUG, "allocator")
    yield
    for logger, (handlers, propagate, level) in zip(loggers, kept, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
