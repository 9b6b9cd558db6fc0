"""What the long runs share: servers made once, and a report in `reports/failover.md`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.machines import Templates
from rig.reports import reporting


@pytest.fixture(scope="session")
def templates() -> Iterator[Templates]:
    made = Templates()
    yield made
    made.close()


report = reporting("failover")
