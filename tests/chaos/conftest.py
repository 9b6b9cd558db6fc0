"""Options of `make chaos`, its seed and its report. Without options, as in `make test`, everything takes seconds."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.documents.reports import write
from support.faults.trouble import place_of
from support.faults.wire import Wire
from support.servers.databases import with_schema

QUICK = 3.0
SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--seconds", type=float, default=QUICK, help="how long each database is in trouble")
    group.addoption("--seed", type=int, default=None, help="of the plan; the run prints it")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--seed")
    config.stash[SEED] = random.SystemRandom().getrandbits(32) if given is None else given


def pytest_report_header(config: pytest.Config) -> str:
    return f"chaos: --seed {config.stash[SEED]} --seconds {config.getoption('--seconds'):g}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Printed where a test fails, since that is how to run it again."""
    found = request.config.stash[SEED]
    print(f"--seed {found} --seconds {request.config.getoption('--seconds'):g}")
    return found


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--seconds"))


@pytest.fixture
def long(seconds: float) -> bool:
    """Whether this is `make chaos`: servers of its own may be killed, and times are looked at."""
    return seconds > QUICK


@pytest.fixture
def report(request: pytest.FixtureRequest, long: bool) -> Callable[[str], None]:
    """Writes a line of figures under the name of the test, where this is `make chaos`."""

    test = f"`{request.node.name}` (seed {request.config.stash[SEED]})"
    return lambda figures: write("chaos", test, figures) if long else None


@pytest.fixture
def place(kind: str, long: bool, new_database: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    """The URL of an empty database with the schema, and what can be done to it: to its network, where it is shared."""
    if long or kind == "sqlite":
        with place_of(kind, new_database) as found:
            yield found
        return
    with Wire(new_database(kind)) as wire:
        yield with_schema(wire.url), wire
