"""What no change waits for, in parts of at most 40 minutes: `make nightly`, or `make nightly PART="mutants failover"`.

Each part is a command; a test that it skips fails it. Its output goes to `reports/nightly/PART.log`, its outcome to
`.ci/nightly.json`, which is committed: it says when each part was last run, on which commit. Without names, the parts
run that have not passed on this commit: the same command resumes a run that was ended. `--list` prints how each ended.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from support.quick import git
from support.servers import fetched
from support.servers.available import KINDS
from tqdm import tqdm

MINUTES = 40
"""After which a part is ended, and has failed."""
OUTCOMES = Path(".ci") / "nightly.json"
LOGS = Path("reports") / "nightly"

PYTEST = (sys.executable, "-m", "pytest", "--no-skips", "--capture=no", "--verbose")
FULL = (sys.executable, "-m", "tools.retry", "--no-skips", "--numprocesses", "4", "--dist", "loadfile")
"""Without --quick: every database with every face, rare settings, the browser, the wheel."""
NOX = (sys.executable, "-m", "nox", "--session")
MATRIX = ("3.11-oldest", "3.11-2.0", "3.11", "3.12", "3.13", "3.14")
SOAKS = {
    "processes": ("prefork", "threads", "clock"),
    "rows": ("feed",),
    "service": ("service", "shards", "many_connections"),
}
OTHERS = ("unit", "simulation", "processes", "migrations", "acceptance", "mutants", "chaos")
PARTS: dict[str, tuple[str, ...]] = {
    "contract": (*FULL, "tests/contract"),
    "others": (*FULL, *(f"tests/{folder}" for folder in OTHERS)),
    "simulate": (sys.executable, "-m", "simulation", "--seeds", "20000"),
    "mutants": (sys.executable, "-m", "mutants"),
    **{f"chaos-{kind}": (*PYTEST, "tests/chaos", "--seconds", "600", "-k", kind) for kind in ("sqlite", *KINDS)},
    "failover": (*PYTEST, "tests/failover"),
    "cluster": (*PYTEST, "tests/cluster"),
    **{
        f"soak-{name}": (*PYTEST, *(f"tests/endurance/test_{each}.py" for each in files))
        for name, files in SOAKS.items()
    },
    **{name: (*NOX, name) for name in (f"postgres-{version}" for version in fetched.POSTGRES)},
    **{name: (*NOX, name) for name in (f"matrix-{each}" for each in MATRIX)},
}


Outcomes = dict[str, dict[str, str]]
"""By part: how it ended, when, and on which commit, which is empty where the tree had changes that are in none."""


def todo(outcomes: Outcomes, commit: str) -> list[str]:
    """The parts that have not passed on a commit."""
    passed = {"ended": "passed", "commit": commit}
    return [name for name in PARTS if not commit or not passed.items() <= outcomes.get(name, {}).items()]


def commit_here() -> str:
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{OUTCOMES}")
    return "" if changed else git("rev-parse", "HEAD")


def read() -> Outcomes:
    return json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}


def run(name: str) -> str:
    """How it ended. At its end, as at Ctrl-C, the tests stop their servers."""
    began, commit = time.monotonic(), commit_here()
    with (LOGS / f"{name}.log").open("wb") as log:
        command = ["timeout", "--foreground", "--signal=INT", "--kill-after=60", f"{MINUTES}m", *PARTS[name]]
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode
    ended = {0: "passed", 124: f"longer than {MINUTES} minutes"}.get(code, "FAILED")
    at = datetime.now(UTC).isoformat(" ", "seconds")
    outcomes = read() | {name: {"ended": ended, "commit": commit, "at": at}}  # read again: other parts may run beside
    OUTCOMES.write_text(json.dumps(outcomes, indent=2) + "\n")
    print(f"{name}: {ended} in {time.monotonic() - began:.0f} s; {LOGS / name}.log", flush=True)
    return ended


def main(words: Sequence[str]) -> int:
    if unknown := [word for word in words if word not in PARTS and word != "--list"]:
        print(f"no such part: {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ALLOCATOR_TEST_REQUIRE", ",".join(KINDS))  # a night without databases proves nothing
    names = [] if "--list" in words else words or todo(read(), commit_here())
    ended = [run(name) for name in tqdm(names, disable=None)]
    for name in PARTS:
        print(name, *read().get(name, {"ended": "not run"}).values())
    return int(any(one != "passed" for one in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
