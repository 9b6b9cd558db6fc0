"""A live column as a replica has it: it is taken over on the primary alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from support.servers.administrator import execute, values
from support.servers.available import without
from support.servers.databases import with_schema
from support.servers.machine_images import MySQLImage
from support.servers.machine_mysql import MariaDB
from support.servers.machine_postgres import Postgres
from support.servers.machines import Machine, Templates, until

from allocator.cli import main

KINDS: dict[str, tuple[type[Machine], str]] = {
    "postgres": (Postgres, "BIGSERIAL PRIMARY KEY"),
    "mysql": (MySQLImage, "BIGINT AUTO_INCREMENT PRIMARY KEY"),
    "mariadb": (MariaDB, "BIGINT AUTO_INCREMENT PRIMARY KEY"),
}
READ_ONLY = {"postgres": (), "mysql": ("--read-only=1",), "mariadb": ("--read-only=1",)}
"""PostgreSQL says by itself that it follows. The user of this test may write all the same."""
REFUSED = re.compile("this server is a read-only replica; use the primary|recovery is in progress; use the primary")
Pair = tuple[Machine, Machine]


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, templates: Templates) -> Iterator[Pair]:
    """A primary with a table, and a replica that has it."""
    kind, counted = KINDS[request.param]
    try:
        primary = templates.new(kind)
    except LookupError as error:
        without(request.param, str(error))
    with closing(primary), closing(primary.copy(extra=READ_ONLY[request.param])) as replica:
        primary.start()
        replica.follow(primary)
        execute(with_schema(primary.url), f"CREATE TABLE t (id {counted})")
        until(lambda: replica.has_all_of(primary), "the replica has all")
        yield primary, replica


def run(machine: Machine, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON, or its sentence if it is refused."""
    result = CliRunner().invoke(main, ["takeover", *words, "--json", "--url", machine.url])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if result.stdout else json.loads(result.stderr.splitlines()[-1])["message"]


def test_a_replica_takes_nothing_over(pair: Pair):
    primary, replica = pair
    start = ("start", "t.id", "--tag", "order", "--watch", "0", "--yes")

    assert REFUSED.search(run(replica, *start, code=1))
    assert values(replica.url, "SELECT tag FROM allocator_segment") == []
    begun = run(primary, *start)
    until(lambda: replica.has_all_of(primary), "the replica has all")
    for command in (["status"], ["finish", "--idle", "0s", "--yes"], ["back", "--yes"]):
        assert REFUSED.search(run(replica, *command, "t.id", code=1))

    assert values(replica.url, "SELECT state FROM allocator_takeover") == ["started"]
    seen = run(primary, "status", "t.id")
    assert (seen["state"], seen["tag_range"], seen["problems"]) == ("started", begun["tag_range"], [])
