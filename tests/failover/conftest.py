"""What the long runs share: servers made once, and a report in `reports/failover.md`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.documents.reports import reporting
from support.servers.machines import Templates


@pytest.fixture(scope="session")
def templates() -> Iterator[Templates]:
    made = Templates()
    yield made
    made.close()


report = reporting("failover")
