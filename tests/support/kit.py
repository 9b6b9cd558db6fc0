"""The words that all tests share: which databases, and what a command said."""

import json
import subprocess
import sys
from collections.abc import Iterator
from time import time_ns
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner

from allocator.cli import main
from allocator.database.store import Database

SERVERS = ("postgres", "mysql", "mariadb")


def on(*kinds: str, of: str = "kind") -> pytest.MarkDecorator:
    """On these databases alone; `of="fleet_kind"` for fleets."""
    return pytest.mark.parametrize(of, kinds, indirect=True)


SQLITE = on("sqlite")
"""For what is the same before each database, or of SQLite alone."""
ON_SERVERS = on(*SERVERS)
ON_POSTGRES = on("postgres")
ON_MYSQL = on("mysql", "mariadb")
ON_TWO = on("sqlite", "postgres")
"""A file and a server, where these show all that there is to see."""
OF_THE_RULE = on("sqlite", "service", of="place")
"""For what is decided whatever the database."""


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


def python(code: str, *words: object, **how: Any) -> Said:
    """A process of its own that runs this program with these words, to its end."""
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **how)
    return Said(done.returncode, done.stdout, done.stderr)


def output(code: str, *words: object, **how: Any) -> str:
    """What such a program says that must succeed."""
    said = python(code, *words, **how)
    assert said.code == 0, said.err
    return said.out


def plain(ids: Any) -> Any:
    """The blocking allocator under one of either face."""
    return getattr(ids, "_allocator", ids)


def backend_of(ids: Any) -> Any:
    """Of an allocator of either face: the one place where tests reach behind it."""
    return plain(ids).backend


def database_of(ids: Any) -> Database:
    """The first one."""
    return backend_of(ids).databases()[0]


def now_ms() -> int:
    """By the clock of this machine, as a claim of a worker number says it."""
    return time_ns() // 1_000_000


def commands(group: click.Group = main, *path: str) -> Iterator[tuple[str, click.Command]]:
    """All that are no groups, by the words after `allocator`."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command
