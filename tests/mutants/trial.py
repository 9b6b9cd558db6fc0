"""One trial: a copy of the checkout, with a change or without, and the tests that run against it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

import pytest
from support.verdict import FINAL

from mutants.catalogue import ROOT, Mutant
from mutants.witness import BROKEN, COPY, FAILURE, UNUSABLE

COPIED = (
    "allocator",
    "migrations",
    "benchmarks",
    "tests",
    "docs",
    "examples",
    "pyproject.toml",
    "alembic.ini",
    "README.md",
)
SECONDS = 180.0
"""After which the tests of a mutant are ended. Whatever hangs was noticed, though not by an assertion."""
TRIVIAL = {"AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "SyntaxError", "UnboundLocalError"}
"""A test that fails with such an error shows a mutant that was written badly, or a test that was wrong before."""

KILLED, TIMED_OUT, SURVIVED, BAD, UNTRIED = "killed", "timed out", "SURVIVED", "BROKEN", "NOT TRIED"


@dataclass(frozen=True)
class Verdict:
    """`by` is the test that failed; `words` why, or what was wrong with the trial."""

    name: str
    outcome: str
    by: str = ""
    words: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.outcome in {KILLED, TIMED_OUT}


@contextmanager
def checkout(mutant: Mutant) -> Iterator[Path]:
    """A folder with what is under test, changed if the mutant names a file; removed afterwards."""
    folder = Path(mkdtemp(prefix="mutant-")).resolve()
    try:
        for name in COPIED:
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            options = {"ignore": shutil.ignore_patterns("__pycache__")} if (ROOT / name).is_dir() else {}
            copied(ROOT / name, folder / name, **options)
        if mutant.file:
            (folder / mutant.file).write_text(mutant.source())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder: Path, servers: Mapping[str, str]) -> dict[str, str]:
    """Of the tests: the copy comes first on the path, also for the processes that they start. Other people's plugins,
    which take longer to import than most tests run, stay out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join([str(folder), str(folder / "tests")])
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "1"}  # with the latter Hypothesis takes no offence at delays
    return {**kept, **servers, **quick, COPY: str(folder), "PYTHONPATH": path}


def command(folder: Path, tests: Sequence[str], selection: str) -> list[str]:
    chosen = ["-k", selection] if selection else []
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "mutants.witness", f"--basetemp={folder / 'basetemp'}"]
    return [sys.executable, "-m", "pytest", *options, *chosen, *tests]


def run(folder: Path, words: Sequence[str], servers: Mapping[str, str]) -> tuple[int | None, str]:
    """The exit code, None after `SECONDS`, and what was said. `SECONDS` or `end_all` end whatever the tests started."""
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=environment(folder, servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    groups.add(child.pid)
    try:
        said, _ = child.communicate(timeout=SECONDS)
        return child.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return None, child.communicate()[0]
    finally:
        groups.discard(child.pid)


groups: set[int] = set()
"""The process groups of the trials under way."""


def end_all() -> None:
    for group in list(groups):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def try_mutant(mutant: Mutant, servers: Mapping[str, str]) -> Verdict:
    begun = monotonic()
    with checkout(mutant) as folder:
        code, said = run(folder, command(folder, mutant.tests, mutant.selection), servers)
        failure = folder / FAILURE
        outcome, by, words = judged(code, said, json.loads(failure.read_text()) if failure.exists() else {})
    return Verdict(mutant.name, outcome, by, words, monotonic() - begun)


def judged(code: int | None, said: str, failure: Mapping[str, str]) -> tuple[str, str, str]:
    """The outcome, the test that failed, and why."""
    last = (said.strip().splitlines() or [""])[-1]
    if code is None:
        return TIMED_OUT, "", f"the tests did not end within {SECONDS:g} seconds"
    if code == 0:
        return (SURVIVED, "", last) if " passed" in last else (UNTRIED, "", last)
    if code == BROKEN:
        return BAD, "", next((line for line in said.splitlines() if UNUSABLE in line), last)
    if code not in (pytest.ExitCode.TESTS_FAILED, FINAL) or not failure:
        return BAD, "", last
    why = f"{failure['error']}: {' '.join(failure['words'].split())}"
    if failure["when"] != "call" or failure["error"] in TRIVIAL:
        return BAD, failure["test"], why
    return KILLED, failure["test"], why


def try_unchanged(tests: Sequence[str], selection: str, servers: Mapping[str, str]) -> Verdict:
    """The control: the same tests must pass where nothing was changed."""
    found = try_mutant(Mutant(f"unchanged ({selection or 'all'})", "", "", "", "", tuple(tests), selection), servers)
    return replace(found, outcome="passed" if found.outcome == SURVIVED else BAD)
