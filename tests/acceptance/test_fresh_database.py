"""What an operator reads of a database on its first day is true, on each of them."""

from __future__ import annotations

from typing import Any

import pytest
from support.kit import ON_POSTGRES, run
from support.processes.patience import until
from support.servers.fleets import opened
from support.service.served import Seat, Served

from allocator.service.console.latest import read_fleet


def states(url: str) -> list[Any]:
    """What `shards list` says as JSON, as a table, and what the console reads for its page."""
    listed = [one["state"] for one in run(url, "shards", "list", "--json").json]
    lines = run(url, "shards", "list").out.splitlines()[1:]
    assert all(line.endswith(state) for line, state in zip(lines, listed, strict=True)), lines
    with opened([url]) as databases:
        read = [str(one.error or "serving") for one in read_fleet(databases).shards]
    assert read == listed
    return listed


def warnings(url: str) -> set[str]:
    """What the doctor finds."""
    assert run(url, "db", "check").out.endswith("the tables are correct\n")
    return {one["name"] for one in run(url, "doctor", "--json").json["findings"]}


@pytest.mark.statements
def test_a_database_serves_and_becomes_a_fleet(fresh):
    for draws in ([], ["next", "order"], ["next", "--scheme", "ticket", "job"]):
        assert not draws or run(fresh, *draws).out == "1\n"
        assert (states(fresh), warnings(fresh)) == (["serving"], set()), draws
    run(fresh, "shards", "make", "--slots", "2")
    (named,) = [one["database"] for one in run(fresh, "shards", "list", "--json").json]

    assert (states(fresh), warnings(fresh)) == (["serving"], {"url-names-no-slot"})
    assert "shard=" in named


@ON_POSTGRES
def test_the_console_says_so_on_its_pages(fresh):
    """One service, before one database: the test above reads the same states of each kind."""
    run(fresh, "next", "order")
    with Served(fresh) as service:
        seat = Seat(service)
        assert until(lambda: "serving" in seat.text("/console/fleet"))
        assert "<dt>Failover gap</dt><dd>auto</dd>" in seat.text("/console/tags/order")
        run(fresh, "shards", "make", "--slots", "2")
        assert until(lambda: "Slot 1 of 2 in the fleet" in seat.text("/console/fleet"), 60)
