"""What the long runs share: a report in `reports/soak.md`; each shows a progress bar on the terminal."""

from __future__ import annotations

import pytest
from support.documents.reports import reporting

report = reporting("soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=10.0, help="how long pods run under each database")
    parser.addoption("--ids", type=float, default=5e6, help="how many ids the threads draw in each test")
