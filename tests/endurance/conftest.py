"""What the long runs share: a report in `reports/soak.md`; each shows a progress bar on the terminal."""

from collections.abc import Iterator

import pytest
from support.documents.reports import reporting
from support.servers.databases import with_schema
from support.servers.machine_images import killable
from support.servers.machines import Machine

report = reporting("soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=10.0, help="how long pods run under each database")
    parser.addoption("--ids", type=float, default=5e6, help="how many ids the threads draw in each test")


@pytest.fixture
def place(kind, new_database) -> Iterator[tuple[str, Machine | None]]:
    """The URL of a database with the schema, and its server, which may be killed; SQLite has none."""
    if kind == "sqlite":
        yield with_schema(new_database(kind)), None
        return
    with killable(kind) as server:
        yield with_schema(server.url), server
