"""What the package imports is declared in pyproject.toml, and is all that is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest

from allocator.errors import InvalidSetting
from allocator.service import server

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CORE = {"alembic", "click", "sqlalchemy"}
ROOMS = {
    "database/mysql": "mysql",
    "database/postgresql": "postgres",
    "public_ids": "server",  # where Pydantic asks for it
    "service": "server",
    "integrations/starlette.py": "server",
    "integrations/django": "django",
    "database/django": "django",
}
"""The extra that a folder or file may use, beside what every install has."""
BY_NAME = {"python-json-logger"}
"""The configuration of logs names its class."""
DISTRIBUTIONS = {
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
}
OURS = {"allocator", "migrations", "_typeshed"}  # the last is of type checkers
OF_TESTS = {"integrations/pytest_plugin.py": {"pytest"}}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9-]", one)[0] for one in requirements}


def imported(path: Path) -> Iterator[str]:
    """The distributions of others that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if isinstance(node, ast.Import):
            found = [one.name for one in node.names]
        for name in {one.partition(".")[0] for one in found} - {*OURS, *sys.stdlib_module_names}:
            yield DISTRIBUTIONS.get(name, name)


def test_what_is_imported_is_declared_by_the_extra_that_uses_it():
    wrong, used = [], set()
    for path in (ROOT / "allocator").rglob("*.py"):
        place = path.relative_to(ROOT / "allocator").as_posix()
        extras = [extra for room, extra in ROOMS.items() if place.startswith(room)]
        declared = CORE.union(OF_TESTS.get(place, ()), *(names(EXTRAS[extra]) for extra in extras))
        found = set(imported(path))
        used |= found
        wrong += [f"{place}: {name}" for name in found - declared]

    assert sorted(wrong) == []
    assert names(PROJECT["dependencies"]) == CORE
    wholly = names([one for name, each in EXTRAS.items() if name != "all" for one in each])
    assert wholly - used == BY_NAME


def test_all_is_every_extra():
    (found,) = EXTRAS["all"]
    assert sorted(re.findall(r"[a-z]+", found.partition("[")[2])) == sorted(EXTRAS.keys() - {"all"})


def test_a_package_of_the_service_that_is_missing_is_named_by_our_metadata(monkeypatch):
    server.check_installed()
    asked = {found[1] for one in requires("segment-allocator") or () if (found := server.NEEDED.match(one))}
    assert asked == names(EXTRAS["server"])
    monkeypatch.setattr(server, "requires", lambda name: ["click>=8", 'no-such>=1; extra == "server"'])
    with pytest.raises(InvalidSetting, match=r"needs no-such, which is not installed; pip install '.*\[server\]'"):
        server.check_installed()
