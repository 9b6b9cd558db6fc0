"""What no change waits for, in parts of at most 40 minutes: `make nightly`, or `make nightly PART="mutants failover"`.

Each part is a command; a test that it skips fails it. Its output goes to `reports/nightly/PART.log`, its outcome to
`.ci/nightly.json`, which is committed: it says when each part was last run, on which commit. Without names, the parts
run that have not passed on this commit: the same command resumes a run that was ended. `--list` prints how each ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
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
    "processes": ("interrupts", "prefork", "restarts", "threads", "clock"),
    "workers": ("worker_run",),
    "rows": ("numbers", "feed"),
    "service": ("service", "shards", "many_connections"),
}
OTHERS = ("unit", "simulation", "processes", "migrations", "acceptance", "mutants", "chaos")
PARTS: dict[str, tuple[str, ...]] = {
    "contract": (*FULL, "tests/contract"),
    "others": (*FULL, *(f"tests/{folder}" for folder in OTHERS)),
    "simulate": (sys.executable, "-m", "simulation", "--seeds", "20000"),
    "mutants": (sys.executable, "-m", "mutants"),
    **{f"chaos-{kind}": (*PYTEST, "tests/chaos", "--seconds", "600", "--only", kind) for kind in ("sqlite", *KINDS)},
    "failover": (*PYTEST, "tests/failover"),
    "cluster": (*PYTEST, "tests/cluster"),
    **{
        f"soak-{name}": (*PYTEST, *(f"tests/endurance/test_{each}.py" for each in files))
        for name, files in SOAKS.items()
    },
    **{name: (*NOX, name) for name in (f"postgres-{version}" for version in fetched.POSTGRES)},
    **{name: (*NOX, name) for name in (f"matrix-{each}" for each in MATRIX)},
}


@dataclass(frozen=True)
class Outcome:
    """How a part ended: `passed`, `FAILED`, or that it was too long."""

    ended: str
    seconds: float
    commit: str
    """Empty where the tree had changes that are in none."""
    at: str


def todo(outcomes: Mapping[str, Outcome], commit: str) -> list[str]:
    """The parts that have not passed on a commit."""
    passed = {name for name, each in outcomes.items() if commit and (each.ended, each.commit) == ("passed", commit)}
    return [name for name in PARTS if name not in passed]


def commit_here() -> str:
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{OUTCOMES}")
    return "" if changed else git("rev-parse", "HEAD")


def read() -> dict[str, Outcome]:
    found = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    return {name: Outcome(**each) for name, each in found.items()}


def write(outcomes: Mapping[str, Outcome]) -> None:
    OUTCOMES.write_text(json.dumps({name: asdict(each) for name, each in outcomes.items()}, indent=2) + "\n")


def run(name: str) -> Outcome:
    began, commit = time.monotonic(), commit_here()
    with (LOGS / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(PARTS[name], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            code = child.wait(MINUTES * 60)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(child)
    ended = {0: "passed", None: f"longer than {MINUTES} minutes"}.get(code, "FAILED")
    return Outcome(ended, round(time.monotonic() - began), commit, datetime.now(UTC).isoformat(" ", "seconds"))


def end(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that the tests stop their servers; then with force."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if child.poll() is None:
            os.killpg(child.pid, number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(60)


def table(outcomes: Mapping[str, Outcome]) -> list[str]:
    lines = []
    for name in PARTS:
        each = outcomes.get(name)
        how = f"{each.ended} in {each.seconds:g} s on {each.commit[:7] or 'no commit'}" if each else "not run"
        lines.append(f"{name:16} {how}")
    return lines


def main(words: Sequence[str]) -> int:
    if unknown := [word for word in words if word not in PARTS and word != "--list"]:
        print(f"no such part: {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ALLOCATOR_TEST_REQUIRE", ",".join(KINDS))  # a night without databases proves nothing
    names = [] if "--list" in words else words or todo(read(), commit_here())
    for name in tqdm(names, disable=None):
        found = run(name)
        write({**read(), name: found})  # read again: other parts may run beside
        print(f"{name}: {found.ended} in {found.seconds:g} s; {LOGS / name}.log", flush=True)
    outcomes = read()
    print(*table(outcomes), sep="\n")
    return 0 if all(outcomes[name].ended == "passed" for name in names) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
