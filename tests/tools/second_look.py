"""The tests, and a second look at what failed: `python -m tools.second_look [arguments of pytest]`, as in `make test`.

Tests that failed are run once more, alone, in one process, when everything else has ended. One that passes then is
flaky: it is printed with its first traceback, and the run is green, where at most `MOST` tests failed. None is looked
at again where an id came twice, where a process of the tests died, or where the flaky test is in `tests/flaky.txt`:
it was to be mended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tools import failures
from tools.failures import Failure

MOST = 5
KNOWN = Path(__file__).parents[1] / "flaky.txt"
FAILED = 1
"""pytest's exit code where all ran and some failed."""


def hopeless(found: Mapping[str, Failure]) -> str:
    """Why there is no second look at these failures; empty where there is one."""
    if twice := [each.test for each in found.values() if each.duplicate]:
        return f"an id came twice, or another promise was broken, in {', '.join(twice)}"
    if died := [each.test for each in found.values() if each.crashed]:
        return f"a process of the tests died in {', '.join(died)}"
    if len(found) > MOST:
        return f"{len(found)} tests failed, and at most {MOST} are looked at again"
    return ""


def judged(found: Mapping[str, Failure], again: Collection[str], known: Collection[str]) -> tuple[list[str], bool]:
    """What to print, and whether the run is green. again: the tests that failed at the second look too."""
    lines: list[str] = []
    for test, failure in found.items():
        if test in again:
            lines.append(f"FAILED twice: {test}")
        elif test in known:
            lines.append(f"FLAKY again, and to be mended: it is in tests/flaky.txt: {test}")
        else:
            lines += [f"FLAKY: {test}", *(f"    {line}" for line in failure.words.splitlines())]
    new = [test for test in found if test not in again and test not in known]
    if new:
        lines.append("Add to tests/flaky.txt and mend now (CONTRIBUTING.md, Flaky tests):")
        lines += new
    return lines, len(new) == len(found)


def names(lines: Iterable[str]) -> set[str]:
    """The tests of `flaky.txt`: one a line, before the sign of a comment with a space on each side."""
    return {name for line in lines if (name := line.partition(" # ")[0].strip()) and not name.startswith("#")}


def run(arguments: Sequence[str]) -> tuple[int, dict[str, Failure]]:
    """The exit code of pytest, and what failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        words = [sys.executable, "-m", "pytest", "-p", "tools.failures", *arguments]
        code = subprocess.run(words, env={**os.environ, failures.FILE: str(path)}, check=False).returncode
        return code, failures.read(path)


def main(arguments: Sequence[str]) -> int:
    code, found = run(arguments)
    if code != FAILED or not found:
        return code
    if why := hopeless(found):
        print(f"No second look: {why}.", flush=True)
        return code
    print(f"A second look at {len(found)} of them, alone:", flush=True)
    code, again = run(["-q", *found])
    if code not in (0, FAILED):
        return code
    lines, green = judged(found, again, names(KNOWN.read_text().splitlines()))
    print(*lines, sep="\n", flush=True)
    return 0 if green else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
