"""What the long runs share: a progress bar on the terminal and a report in `reports/`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

REPORT = Path("reports") / "soak.md"


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Writes a line of figures under the name of the test."""

    def write(figures: str) -> None:
        REPORT.parent.mkdir(exist_ok=True)
        now = datetime.now(UTC).isoformat(" ", "seconds")
        with REPORT.open("a") as file:
            file.write(f"- {now} `{request.node.name}`: {figures}\n")

    return write
