"""The reports of the long runs: a line of figures for each test, in `reports/`."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path("reports")


def write(name: str, test: str, figures: str) -> None:
    """A line of `reports/name.md`."""
    FOLDER.mkdir(exist_ok=True)
    now = datetime.now(UTC).isoformat(" ", "seconds")
    with (FOLDER / f"{name}.md").open("a") as file:
        file.write(f"- {now} {test}: {figures}\n")


def reporting(name: str) -> Any:
    """A fixture that writes figures under the name of the test."""

    @pytest.fixture
    def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
        return lambda figures: write(name, f"`{request.node.name}`", figures)

    return report
