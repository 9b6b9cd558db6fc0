"""`make nightly`, or `make nightly PART="mutants failover"`: what no change waits for; `nox --list` names the parts.

A test that is skipped fails its part, but for older servers and the matrix. `.ci/nightly.json`, which is committed,
says when each part was last green, and on which commit: empty where the tree had changes.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import nox

sys.path.insert(0, "tests")
from support.quick import git
from support.servers import fetched
from support.servers.available import KINDS
from support.servers.throwaway import POSTGRES_BIN
from tools.nightly import MATRIX, OLDER, PARTS, QUICKLY

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True

GREEN = Path(".ci") / "nightly.json"
WITHIN = ("timeout", "--foreground", "--signal=INT", "--kill-after=60", "40m")
TESTS = {"PYTHONPATH": "tests"}
ALL_SERVERS = {"ALLOCATOR_TEST_REQUIRE": ",".join(KINDS)}  # a night without databases proves nothing


def run(session: nox.Session, *command: str, **env: str | None) -> None:
    session.run(*WITHIN, *command, env=TESTS | env, external=True)
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{GREEN}")
    green = {"at": datetime.now(UTC).isoformat(" ", "seconds"), "commit": "" if changed else git("rev-parse", "HEAD")}
    GREEN.write_text(json.dumps(json.loads(GREEN.read_text()) | {session.name: green}, indent=2) + "\n")


def part(name: str) -> None:
    @nox.session(name=name, venv_backend="none")
    def here(session: nox.Session) -> None:
        run(session, sys.executable, *PARTS[name], **ALL_SERVERS)


def matrix(name: str) -> None:
    @nox.session(name=f"matrix-{name}", python=name.partition("-")[0])
    def of_its_own(session: nox.Session) -> None:
        tests = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
        session.install("-e", ".[all]", *MATRIX[name].split(), *tests)
        run(session, "python", *QUICKLY, "--quick", **ALL_SERVERS)


def older(name: str) -> None:
    @nox.session(name=name, venv_backend="none")
    def with_fetched(session: nox.Session) -> None:
        own = {POSTGRES_BIN: str(fetched.postgres(name.partition("-")[2])), "ALLOCATOR_TEST_REQUIRE": "postgres"}
        run(session, sys.executable, *OLDER[name], **own, ALLOCATOR_TEST_POSTGRES_URL=None)


for makes, names in (part, PARTS), (matrix, MATRIX), (older, OLDER):
    for each in names:
        makes(each)
