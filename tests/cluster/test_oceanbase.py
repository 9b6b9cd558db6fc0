"""One node of OceanBase, which only looks like MySQL: whenever it is killed, no id comes twice."""

import json
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.clusters.writers import account, only, under_load, wait
from support.servers.administrator import execute, values
from support.servers.available import or_without
from support.servers.databases import with_schema
from support.servers.machines import OceanBase

KILLS, BETWEEN = 10, 5
COUNTS = {"segment": 4, "ticket": 2, "meteor": 1, "snowflake": 1}


@pytest.fixture(scope="module")
def node() -> Iterator[OceanBase]:
    machine = or_without("oceanbase", OceanBase.new)
    with_schema(machine.url)
    execute(machine.url, "ALTER TABLE allocator_node AUTO_INCREMENT_CACHE_SIZE = 1")
    yield machine
    machine.close()


def test_a_node_is_killed_ten_times(node, writers, report):
    def trouble() -> None:
        for number in range(KILLS):
            node.kill()
            node.start()
            wait(BETWEEN, f"after kill {number + 1} of {KILLS}")

    one = SimpleNamespace(url=lambda member: node.url)
    account(under_load(one, writers, "killed", only(0), trouble, COUNTS), report)
    for what, table, column in (("id or ticket", "segment", "max_value"), ("node", "node", "id")):
        report(f"the greatest {what}: {values(node.url, f'SELECT max({column}) FROM allocator_{table}')}")


def test_the_commands_say_that_the_guard_sleeps_and_nothing_else(node):
    def said(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-W", "error", "-m", "allocator", *words, "--json", "--url", node.url]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)

    assert [finding["name"] for finding in said("doctor")["findings"]] == ["guard-sleeps"]
    assert said("db", "check")["problems"] == []
