"""What the exit code of a run says: whether what failed may be retried (`tools.retry`), and whether a skip is red."""

import re
from pathlib import Path
from typing import Any

import pytest

FINAL = 10
"""The exit code where something failed and nothing is retried."""
MOST = 5
"""Tests that are retried."""
TWICE = re.compile(r"\b(Duplicate|Violation|IntegrityError|UniqueViolation)\b")
"""As a traceback names it, also that of a child process: what `distinct`, the simulator or a database raises."""
NOT_MISSING = re.compile("sqlite3 has autocommit since Python 3.12|one writer at a time")
"""Reasons of skips where nothing is missing that could be installed."""
KNOWN = Path(__file__).parents[1] / "flaky.txt"


class Verdict:
    """A plugin of the process that counts the tests, which sees the reports of all. `final` says why nothing is
    retried."""

    def __init__(self, known: set[str], is_skip_red: bool) -> None:
        self.known, self.is_skip_red = known, is_skip_red
        self.failed: set[str] = set()
        self.final: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.final.append(f"{report.nodeid} could not be collected")
        self.look_at_skip(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.look_at_skip(report)
        if report.failed:
            self.failed.add(report.nodeid)
            words = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
            if TWICE.search(words):
                self.final.append(f"{report.nodeid}: an id came twice, or another promise was broken")
            if report.when not in ("setup", "call", "teardown"):  # so pytest-xdist reports a process that died
                self.final.append(f"{report.nodeid}: its process died")
            if report.nodeid in self.known:
                self.final.append(f"{report.nodeid} was flaky before: it is in tests/flaky.txt, and to be mended")

    def look_at_skip(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if self.is_skip_red and report.skipped and not hasattr(report, "wasxfail"):
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            if not NOT_MISSING.search(why):
                self.final.append(f"{report.nodeid} was skipped: {why}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if stopped := session.shouldfail or session.shouldstop:
            self.final.append(f"some tests did not run: {stopped}")
        if len(self.failed) > MOST:
            self.final.append(f"{len(self.failed)} tests failed, and at most {MOST} are retried")
        if self.final and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = FINAL

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.final:
            terminalreporter.write_line(f"Not retried: {line}")


def names(text: str) -> set[str]:
    """The tests of `flaky.txt`: one a line, before the sign of a comment with a space on each side."""
    lines = [line.partition(" # ")[0].strip() for line in text.splitlines()]
    return {name for name in lines if name and not name.startswith("#")}


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails the run, as at night")


def judge(config: pytest.Config) -> None:
    """Register a verdict, where the tests are counted."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Verdict(names(KNOWN.read_text()), config.getoption("--no-skips")))
