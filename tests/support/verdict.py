"""A retry of what failed (`pytest --retry`), what is never retried, and whether a skip is red (`--no-skips`).

Tests that failed are run once more, by themselves, in one process, when everything else has ended. Where all pass then,
the run is green and they are flaky: their names are printed.
"""

import os
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FINAL = 10
"""The exit code where something failed and nothing is retried."""
MOST = 5
"""Tests that are retried."""
NEVER = {
    r"\b(Duplicate|Violation|IntegrityError|UniqueViolation)\b": "an id came twice, or another promise was broken",
    "crashed while running": "its process died",
}
"""As a traceback says it, also that of a child process: by `distinct`, the simulator, a database or pytest-xdist."""
NOT_MISSING = re.compile("sqlite3 has autocommit since Python 3.12|one writer at a time")
"""Reasons of skips where nothing is missing that could be installed."""
KNOWN = Path(__file__).parents[1] / "flaky.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--retry", action="store_true", help="what failed is run again, by itself")
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails the run, as at night")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    is_first = config.getoption("--retry") and not config.getoption("--last-failed") and not is_worker(config)
    if is_first:
        config.option.cacheclear = True  # of what failed in other runs
    code = yield
    if is_first and code == pytest.ExitCode.TESTS_FAILED:
        print("A retry of what failed, by itself:", flush=True)
        words = (*config.invocation_params.args, "--last-failed", "--no-skips", "--numprocesses", "0", "-rap")
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *map(str, words)])
    return code


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if not is_worker(config):
        config.pluginmanager.register(Verdict(config))


class Verdict:
    """A plugin of the process that counts the tests, which sees the reports of all. `final` says why nothing is
    retried."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_skip_red = config.getoption("--no-skips")
        self.is_retry = config.getoption("--retry") and config.getoption("--last-failed")
        self.known = KNOWN.read_text()
        self.failed: set[str] = set()
        self.final: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        words = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
        if report.failed:
            self.failed.add(report.nodeid)
            self.final += [f"{report.nodeid}: {why}" for pattern, why in NEVER.items() if re.search(pattern, words)]
            if f"\n{report.nodeid} # " in self.known:
                self.final.append(f"{report.nodeid} was flaky before: it is in tests/flaky.txt, and to be mended")
        elif report.skipped and self.is_skip_red and not hasattr(report, "wasxfail") and not NOT_MISSING.search(words):
            self.final.append(f"{report.nodeid} was skipped: {words}")

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if stopped := session.shouldfail or session.shouldstop:
            self.final.append(f"some tests did not run: {stopped}")
        if len(self.failed) > MOST:
            self.final.append(f"{len(self.failed)} tests failed, and at most {MOST} are retried")
        if self.final and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = FINAL

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        lines = [f"Not retried: {line}" for line in self.final]
        if self.is_retry and exitstatus == 0 and not self.final:
            lines = ["FLAKY: mend what passed, and add it to tests/flaky.txt (CONTRIBUTING.md)"]
        for line in lines:
            terminalreporter.write_line(line)
