"""The quick tests on every Python and line of SQLAlchemy: `python -m tools.matrix [NAME…]`, a part of `make nightly`.

A name is one of `COMBINATIONS`; without names, all run. A Python that is not on this machine is said to be absent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.servers.available import KINDS, Server, Servers

OLDEST = "sqlalchemy==2.0.43 aiosqlite==0.20.0"  # aiosqlite 0.22 leaves a thread that this one does not end
LAST_2_0, NEWEST = "sqlalchemy==2.0.58", "sqlalchemy>=2.1,<2.2"
COMBINATIONS = {
    "3.11-oldest": ("3.11", OLDEST),
    "3.11-2.0": ("3.11", LAST_2_0),
    "3.11": ("3.11", NEWEST),
    "3.12": ("3.12", NEWEST),
    "3.13": ("3.13", NEWEST),
    "3.14": ("3.14", NEWEST),
}
FOLDER = Path(".venv-matrix")
GROUPS = ("--group", "test")
TESTS = ("--quick", "--numprocesses", "4", "--dist", "loadfile")
ABSENT = 77
"""The exit code where nothing failed and some Python is not here."""


def interpreter(version: str) -> str | None:
    """On the PATH or of pyenv, and one that starts: a shim of pyenv may be there and not start."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(homes.glob(f"{version}.*/bin/python")))]
    return next((each for each in candidates if starts(each, version)), None)


def starts(candidate: str, version: str) -> bool:
    try:
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return said.startswith(f"Python {version}.")


def run(name: str, python: str, packages: str, environment: dict[str, str]) -> bool:
    from uv import find_uv_bin

    venv = FOLDER / name
    inside = str(venv / "bin" / "python")
    if not Path(inside).exists():
        subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = [find_uv_bin(), "pip", "install", "-q", "--python", inside, *packages.split(), "-e", ".[all]", *GROUPS]
    subprocess.run(install, check=True)
    words = [inside, "-m", "tools.second_look", *TESTS]
    return subprocess.run(words, env=environment | {"PYTHONPATH": "tests"}, check=False).returncode == 0


def main(names: Sequence[str]) -> int:
    servers = Servers()
    servers.start(set(KINDS))
    print(*servers.lines(), sep="\n", flush=True)
    urls = {
        f"ALLOCATOR_TEST_{kind.upper()}_URL": each.url
        for kind, each in servers.found.items()
        if isinstance(each, Server)
    }
    outcomes = {}
    try:
        for name in names or COMBINATIONS:
            version, packages = COMBINATIONS[name]
            python = interpreter(version)
            passed = python and run(name, python, packages, os.environ | urls)
            outcomes[name] = "passed" if passed else f"no Python {version} here" if python is None else "FAILED"
    finally:
        servers.stop()
    print(*(f"{name}: {outcome}" for name, outcome in outcomes.items()), sep="\n")
    if "FAILED" in outcomes.values():
        return 1
    return 0 if set(outcomes.values()) == {"passed"} else ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
