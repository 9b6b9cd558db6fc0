"""The quick tests on each Python, SQLAlchemy and Django, and the SQL on older PostgreSQL: parts of `make nightly`."""

import sys

import nox

sys.path.insert(0, "tests")
from support.servers import fetched
from support.servers.throwaway import POSTGRES_BIN
from tools.nightly import MATRIX

nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True

OLDEST = "sqlalchemy==2.0.43 django==4.2.* aiosqlite==0.20.0"  # aiosqlite 0.22 leaves a thread that it does not end
LAST_2_0, NEWEST = "sqlalchemy==2.0.58", "sqlalchemy>=2.1,<2.2"
PACKAGES = {"3.11-oldest": OLDEST, "3.11-2.0": LAST_2_0}
TESTS = ("python", "-m", "tools.retry", "--numprocesses", "4", "--dist", "loadfile")
LIKE_POSTGRES = "(postgres or test_managed_databases and not TiDB and not OceanBase)"
UNSEEN = {"14": " and not nothing_is_scanned"}
"""Of this version no session can say when the rows that it read are counted."""


def matrix(name: str) -> None:
    @nox.session(name=f"matrix-{name}", python=name.partition("-")[0])
    def run(session: nox.Session) -> None:
        tests = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")
        session.install("-e", ".[all]", *PACKAGES.get(name, NEWEST).split(), *tests)
        session.run(*TESTS, "--quick", env={"PYTHONPATH": "tests"})


def postgres(version: str) -> None:
    @nox.session(name=f"postgres-{version}", venv_backend="none")
    def run(session: nox.Session) -> None:
        cases = ("-k", LIKE_POSTGRES + UNSEEN.get(version, ""))
        own = {POSTGRES_BIN: str(fetched.postgres(version)), "ALLOCATOR_TEST_REQUIRE": "postgres"}
        own |= {"ALLOCATOR_TEST_POSTGRES_URL": None, "PYTHONPATH": "tests"}
        session.run(*TESTS, "tests/contract", "tests/migrations", *cases, env=own)


for each in MATRIX:
    matrix(each)
for each in fetched.POSTGRES:
    postgres(each)
