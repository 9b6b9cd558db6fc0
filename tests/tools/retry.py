"""The tests, and a retry of what failed: `python -m tools.retry [arguments of pytest]`, as in `make test`.

Tests that failed are run once more, by themselves, in one process, when everything else has ended. Where all pass then,
the run is green and they are flaky: their names are printed. `support.verdict` says what is never retried.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

FAILED = 1
"""pytest's exit code where all ran and some failed."""
BY_THEMSELVES = ("--last-failed", "--no-skips", "--numprocesses", "0")


def run(words: Sequence[str]) -> int:
    """The exit code. An interrupt reaches the child too, which ends its servers first."""
    child = subprocess.Popen([sys.executable, "-m", "pytest", *words])
    while True:
        with suppress(KeyboardInterrupt):
            return child.wait()


def main(arguments: Sequence[str]) -> int:
    with TemporaryDirectory() as folder:
        words = [*arguments, "-o", f"cache_dir={folder}"]
        if (code := run(words)) != FAILED:
            return code
        failed = json.loads((Path(folder) / "v" / "cache" / "lastfailed").read_text())
        print("A retry of what failed, by itself:", flush=True)
        code = run([*words, *BY_THEMSELVES])
    if code == 0:
        print("FLAKY: mend now, and add to tests/flaky.txt (CONTRIBUTING.md):", *failed, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
