"""The words that all tests share: which databases, and what a command said."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from allocator.cli import main
from allocator.database.store import Database

SERVERS = ("postgres", "mysql", "mariadb")
statements = pytest.mark.statements


def on(*kinds: str, of: str = "kind") -> pytest.MarkDecorator:
    """On these databases alone; `of="fleet_kind"` for fleets."""
    return pytest.mark.parametrize(of, kinds, indirect=True)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(url: str, *words: str, **environment: str) -> Said:
    """`allocator` with these words, its database in the environment."""
    done = CliRunner().invoke(main, list(words), env={"ALLOCATOR_DATABASE_URL": url, **environment})
    return Said(done.exit_code, done.stdout, done.stderr)


def backend_of(ids: Any) -> Any:
    """Of an allocator of either face: the one place where tests reach behind it."""
    return getattr(ids, "_allocator", ids)._backend


def database_of(ids: Any) -> Database:
    """The first one."""
    return backend_of(ids).databases()[0]
