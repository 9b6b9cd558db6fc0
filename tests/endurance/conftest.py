"""What the long runs share: a report in `reports/soak.md`; each shows a progress bar on the terminal."""

from collections.abc import Iterator

import pytest
from support.documents.reports import reporting
from support.faults.trouble import Place, place_of

report = reporting("soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ids", type=float, default=5e6, help="how many ids the threads draw in each test")


@pytest.fixture
def place(kind, new_database) -> Iterator[tuple[str, Place]]:
    """The URL of a database with the schema, and its server, which may be killed."""
    with place_of(kind, new_database) as found:
        yield found
