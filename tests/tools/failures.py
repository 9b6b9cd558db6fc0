"""A plugin of pytest that writes down what failed, for `second_look`: `-p tools.failures`, with the variable below."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

FILE = "ALLOCATOR_TEST_FAILURES"
"""The variable with the path of the file."""
DUPLICATE = re.compile(r"\b(Duplicate|Violation): ")
"""As a traceback names it, also that of a child process. `Violation` is what the simulator raises."""


@dataclass(frozen=True)
class Failure:
    """A test that failed, in its set-up, its call or its tear-down; `words` is the traceback."""

    test: str
    words: str
    crashed: bool = False
    """Whether the process that ran it died."""

    @property
    def duplicate(self) -> bool:
        """Whether an id came twice."""
        return DUPLICATE.search(self.words) is not None


def read(path: Path) -> dict[str, Failure]:
    """By test, the first failure of each; nothing where pytest ended too early to write any."""
    found: dict[str, Failure] = {}
    for each in json.loads(path.read_text()) if path.exists() else ():
        failure = Failure(**each)
        found.setdefault(failure.test, failure)
    return found


class Recorder:
    """Sees every report where the tests are counted, also those of other processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[Failure] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crashed = report.when not in ("setup", "call", "teardown")  # so pytest-xdist reports a worker that died
            self.found.append(Failure(report.nodeid, report.longreprtext, crashed))

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(dumped(self.found))


def dumped(failures: Iterable[Failure]) -> str:
    return json.dumps([asdict(each) for each in failures])


def pytest_configure(config: Any) -> None:
    if (path := os.environ.get(FILE)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)))
