"""pytest with a record of what failed and passed, for `second_look`: `python -m tools.failures RECORD [arguments]`.

The record is written when all has ended, with the tear-down of the session: none, or one of another exit code, means
that pytest itself died.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

TWICE = re.compile(r"\b(Duplicate|Violation|IntegrityError|UniqueViolation)\b")
"""As a traceback names it, also that of a child process: what `distinct`, the simulator or a database raises."""


@dataclass(frozen=True)
class Failure:
    """All that failed in a test: its set-up, its call, its parts, its tear-down; `words` are the tracebacks."""

    words: str
    twice: bool = False
    """Whether an id came twice."""
    crashed: bool = False
    """Whether the process that ran it died."""

    def __or__(self, other: Failure) -> Failure:
        return Failure(f"{self.words}\n{other.words}", self.twice or other.twice, self.crashed or other.crashed)


@dataclass(eq=False)
class Record:
    """Of a run: `failed` by test; `passed` are the tests whose call passed; `incomplete` says why some did not run."""

    code: int = -1
    failed: dict[str, Failure] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Record:
        if not path.exists():
            return cls(incomplete=["pytest died"])
        found = json.loads(path.read_text())
        return cls(**{**found, "failed": {test: Failure(**each) for test, each in found["failed"].items()}})

    # -- the plugin, where the tests are counted: it sees the reports of all processes

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.incomplete.append(f"{report.nodeid} could not be collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crashed = report.when not in ("setup", "call", "teardown")  # so pytest-xdist reports a process that died
            words = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
            twice = getattr(report, "twice", False) or TWICE.search(words) is not None
            failure = Failure(report.longreprtext, twice, crashed)
            before = self.failed.get(report.nodeid)
            self.failed[report.nodeid] = before | failure if before else failure
        elif report.when == "call" and report.passed:
            self.passed.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if stopped := session.shouldfail or session.shouldstop:
            self.incomplete.append(str(stopped))


def errors(error: BaseException) -> Iterator[BaseException]:
    """The error, and those of a group."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from errors(each)


def says_twice(error: BaseException) -> bool:
    return any(TWICE.search(kind.__name__) for each in errors(error) for kind in type(each).__mro__)


def main(arguments: Sequence[str]) -> int:
    path, *words = arguments
    record = Record()
    record.code = int(pytest.main(words, plugins=[record]))
    Path(path).write_text(json.dumps(asdict(record)))
    return record.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
