"""What an operator reads of a database on its first day is true, on each of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from support.processes.patience import until
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.service.served import Seat, Served

from allocator.cli import main
from allocator.fleet.discovery import state_of
from allocator.service.console.latest import read_fleet
from allocator.service.settings import ServeSettings

REPLACED = "its server was replaced: run allocator shards trust "


def run(url: str, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--url", url])
    assert done.exit_code == 0, done.output
    return done.output


def states(url: str) -> list[Any]:
    """What `shards list` says as JSON, as a table, and what the console reads for its page."""
    listed = [one["state"] for one in json.loads(run(url, "shards", "list", "--json"))]
    lines = run(url, "shards", "list").splitlines()[1:]
    assert all(line.endswith(state) for line, state in zip(lines, listed, strict=True)), lines
    read = [state_of(one) for one in read_fleet(ServeSettings((url,))).shards]
    assert read == listed
    return listed


def warnings(url: str) -> set[str]:
    """What the doctor finds."""
    assert run(url, "db", "check").endswith("the tables are correct\n")
    findings = json.loads(CliRunner().invoke(main, ["doctor", "--json", "--url", url]).output)["findings"]
    return {one["name"] for one in findings}


@pytest.mark.statements
def test_no_server_was_replaced_before_one_was(fresh, kind, new_database):
    for draws in ([], ["next", "order"], ["next", "--scheme", "ticket", "job"]):
        assert not draws or run(fresh, *draws) == "1\n"
        assert (states(fresh), warnings(fresh)) == (["serving"], set()), draws
    other = with_schema(new_database(kind))
    run(fresh, "shards", "add", other)
    run(fresh, "shards", "grow")
    assert states(fresh) == ["serving", "serving"]
    execute(other, "UPDATE allocator_shard SET trusted = 0")
    assert states(fresh)[1].startswith(REPLACED)
    assert "shard-on-another-server" in warnings(other)
    run(fresh, "shards", "trust", other)

    assert states(fresh) == ["serving", "serving"]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_the_console_says_so_on_its_pages(fresh, kind, new_database):
    """One service, before one database: the test above reads the same states of each kind."""
    run(fresh, "next", "order")
    with Served(fresh) as service:
        seat = Seat(service)
        assert until(lambda: "serving" in seat.text("/console/fleet"))
        page = seat.text("/console/fleet")
        assert REPLACED not in page
        assert "<dt>Failover gap</dt><dd>auto</dd>" in seat.text("/console/tags/order")
        other = with_schema(new_database(kind))
        run(fresh, "shards", "add", other)
        run(fresh, "shards", "grow")
        execute(other, "UPDATE allocator_shard SET trusted = 0")
        assert until(lambda: REPLACED in seat.text("/console/fleet"), 60)
