"""What the long runs share: servers made once, and a report in `reports/failover.md`."""

from collections.abc import Iterator

import pytest
from support.documents.reports import reporting
from support.servers.machines import Templates


@pytest.fixture(scope="session")
def templates() -> Iterator[Templates]:
    with Templates() as made:
        yield made


report = reporting("failover")
