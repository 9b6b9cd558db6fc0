"""The tests, and a retry of what failed: `python -m tools.second_look [arguments of pytest]`, as in `make test`.

Tests that failed are run once more, by themselves, in one process, when everything else has ended. One that passes then
is flaky: it is printed with its first traceback, and the run is green, where at most `MOST` tests failed. Nothing is
retried where an id came twice, where a process of the tests died, or where some tests were not run. A test in
`tests/flaky.txt` was to be mended: it may not be flaky again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tools.failures import Record

MOST = 5
KNOWN = Path(__file__).parents[1] / "flaky.txt"
MINUTES = 15
"""After which a retry is ended: a test that failed may have left a thread for which its process waits for ever."""
FAILED = 1
"""pytest's exit code where all ran and some failed."""


def hopeless(record: Record) -> str:
    """Why there is no retry; empty where there is one."""
    if record.incomplete:
        return f"some tests did not run: {'; '.join(record.incomplete)}"
    if twice := [test for test, each in record.failed.items() if each.twice]:
        return f"an id came twice, or another promise was broken, in {', '.join(twice)}"
    if died := [test for test, each in record.failed.items() if each.crashed]:
        return f"a process of the tests died in {', '.join(died)}"
    if len(record.failed) > MOST:
        return f"{len(record.failed)} tests failed, and at most {MOST} are retried"
    return ""


def judged(first: Record, second: Record, known: Collection[str]) -> tuple[list[str], bool]:
    """What to print, and whether the run is green."""
    lines: list[str] = []
    passed = set(second.passed) - second.failed.keys()
    new = [test for test in first.failed if test in passed and test not in known]
    for test, failure in first.failed.items():
        if test in new:
            lines += [f"FLAKY: {test}", *(f"    {line}" for line in failure.words.splitlines())]
        elif test in passed:
            lines.append(f"FLAKY again, and to be mended: it is in tests/flaky.txt: {test}")
        else:
            lines.append(f"FAILED, and did not pass at its retry: {test}")
    if new:
        lines += ["Add to tests/flaky.txt and mend now (CONTRIBUTING.md, Flaky tests):", *new]
    return lines, len(new) == len(first.failed)


def names(lines: Iterable[str]) -> set[str]:
    """The tests of `flaky.txt`: one a line, before the sign of a comment with a space on each side."""
    return {name for line in lines if (name := line.partition(" # ")[0].strip()) and not name.startswith("#")}


def run(arguments: Sequence[str], minutes: float | None = None) -> tuple[int, Record]:
    """The exit code of pytest, and what failed. An interrupt reaches pytest too, which ends its servers first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        child = subprocess.Popen([sys.executable, "-m", "tools.failures", str(path), *arguments])
        while child.poll() is None:
            try:
                child.wait(minutes and minutes * 60)
            except subprocess.TimeoutExpired:
                child.kill()
            except KeyboardInterrupt:
                pass
        return child.returncode, Record.read(path)


def main(arguments: Sequence[str]) -> int:
    code, first = run(arguments)
    if code != FAILED or first.code != FAILED:
        return code
    if why := hopeless(first):
        print(f"Not retried: {why}.", flush=True)
        return code
    print(f"A retry of {len(first.failed)} tests, by themselves:", flush=True)
    code, second = run(["-q", *first.failed], MINUTES)
    if code not in (0, FAILED) or code != second.code:
        return code or FAILED
    lines, green = judged(first, second, names(KNOWN.read_text().splitlines()))
    print(*lines, sep="\n", flush=True)
    if "GITHUB_ACTIONS" in os.environ:
        print(*(f"::warning::{line}" for line in lines if line.startswith("FLAKY")), sep="\n", flush=True)
    return 0 if green else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
