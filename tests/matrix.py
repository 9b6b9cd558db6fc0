"""The tests on every Python that is here, and on both lines of SQLAlchemy: `make matrix`.

With `--tenth`, as before each change that lands, a tenth of them: what a version of Python or SQLAlchemy is likely to
break, on SQLite and PostgreSQL; the oldest versions together, and the newest, where `make test` does not use these.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.servers.available import KINDS, Server, Servers
from tqdm import tqdm
from uv import find_uv_bin

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEWEST = "2.1"
SQLALCHEMY = {"2.0 oldest": "sqlalchemy==2.0.41", "2.0": "sqlalchemy==2.0.58", NEWEST: "sqlalchemy>=2.1,<2.2"}
OLDER = [line for line in SQLALCHEMY if line != NEWEST]
FOLDER = Path(".venv-matrix")
AT_ONCE = 2
GROUPS = ("--group", "test", "--group", "apps", "hatchling", "hatch-fancy-pypi-readme")
TENTH = (
    "--quick",
    "tests/unit/test_laws.py::test_import_allocator_is_cheap",
    "tests/unit/testing/test_memory.py",
    "tests/unit/schemes/test_objectid.py",
    "tests/unit/generators/test_supply.py",
    "tests/contract/test_ids.py",
    "tests/contract/test_sqlalchemy.py",
    "tests/contract/test_sqlalchemy_async.py",
    "tests/migrations/test_schema.py",
    "-k",
    "not mysql and not mariadb",
)


def interpreters() -> dict[str, str]:
    """Pythons on the PATH and of pyenv that start; a shim of pyenv may be there and not start."""
    found = {}
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        candidates = [f"python{version}", *map(str, sorted(homes.glob(f"{version}.*/bin/python")))]
        for candidate in candidates:
            if starts(candidate, version):
                found[version] = candidate
                break
    return found


def starts(candidate: str, version: str) -> bool:
    try:
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return said.startswith(f"Python {version}.")


def combinations(pythons: Sequence[str], tenth: bool) -> list[tuple[str, str]]:
    """Every Python with the newest SQLAlchemy, and the first Python with the older ones."""
    if not tenth:
        return [(version, NEWEST) for version in pythons] + [(pythons[0], line) for line in OLDER]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    ends = [(pythons[0], OLDER[0]), (pythons[-1], NEWEST)]
    return [one for one in ends if one != (here, NEWEST)]


def run(version: str, python: str, line: str, environment: dict[str, str], tests: Sequence[str]) -> tuple[bool, str]:
    venv = FOLDER / f"{version}-{line.replace(' ', '-')}"
    inside = str(venv / "bin" / "python")
    if not Path(inside).exists():
        subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = [find_uv_bin(), "pip", "install", "-q", "--python", inside, SQLALCHEMY[line], "-e", ".[all]", *GROUPS]
    subprocess.run(install, check=True)
    done = subprocess.run(
        [inside, "-m", "pytest", "-q", *tests], env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        print(*lines[-60:], done.stderr, sep="\n")
    return done.returncode == 0, lines[-1] if lines else ""


def main() -> int:
    tenth = "--tenth" in sys.argv
    servers = Servers()
    servers.start({"postgres"} if tenth else set(KINDS))
    environment = dict(os.environ)
    for kind, server in servers.found.items():
        if isinstance(server, Server):
            environment[f"ALLOCATOR_TEST_{kind.upper()}_URL"] = server.url
    print(*servers.lines(), sep="\n")
    tests = TENTH if tenth else ()
    results = []
    try:
        pythons = interpreters()
        todo = [(version, pythons[version], line) for version, line in combinations(list(pythons), tenth)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = pool.map(lambda one: run(*one, environment, tests), todo)
            for (version, _, line), (passed, words) in zip(
                todo, tqdm(done, total=len(todo), disable=None), strict=True
            ):
                results.append(passed)
                print(f"Python {version}, SQLAlchemy {line}: {'passed' if passed else 'FAILED'}: {words}", flush=True)
    finally:
        servers.stop()
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
