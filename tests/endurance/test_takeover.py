"""A column of a million rows and two foreign keys is taken over and given back, while eight writers insert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from support.distinct import distinct
from support.processes.takeover_writers import writing
from support.servers.administrator import execute, values
from support.servers.databases import with_schema

from allocator.cli import main

DOUBLINGS = 20
EACH = 500
"""Rows of each writer between two commands."""
ORDERS = "CREATE TABLE orders (id {}, what VARCHAR(20))"
LINES = "CREATE TABLE {} (id {}, order_id BIGINT NOT NULL, FOREIGN KEY (order_id) REFERENCES orders (id))"
COUNTED = {"postgres": "BIGSERIAL PRIMARY KEY"}


def run(url: str, *words: str) -> float:
    """The seconds that a command took."""
    began = time.monotonic()
    result = CliRunner().invoke(main, ["takeover", *words, "--yes", "--json", "--url", url])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["problems"] == []
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
@pytest.mark.parametrize("last", ["finish", "back"])
def test_a_million_rows_under_eight_writers(kind, last, new_database: Callable[[str], str], report):
    url, counted = with_schema(new_database(kind)), COUNTED.get(kind, "BIGINT AUTO_INCREMENT PRIMARY KEY")
    execute(url, ORDERS.format(counted), *(LINES.format(name, counted) for name in ("line", "refund")))
    execute(url, "INSERT INTO orders (what) VALUES ('old')")
    execute(url, *["INSERT INTO orders (what) SELECT what FROM orders"] * DOUBLINGS)
    with writing(url) as writers:
        old = writers.add(4)
        writers.wait_for(EACH)
        seconds = [run(url, "start", "orders.id", "--tag", "order", "--watch", "0")]
        new = writers.add(4, "order")
        writers.wait_for(EACH)
        if last == "finish":
            writers.stop(old)
            CliRunner().invoke(main, ["takeover", "status", "orders.id", "--url", url])
            seconds.append(run(url, "finish", "orders.id", "--idle", "0s"))
        else:
            seconds.append(run(url, "back", "orders.id"))
        writers.wait_for(EACH, new if last == "finish" else None)
        writers.stop()
        written, longest = writers.ids(), max(one.longest for one in writers.all)
    (rows,) = values(url, "SELECT COUNT(*) FROM orders")
    report(
        f"{kind}: takeover of a column of {2**DOUBLINGS:,} rows with two foreign keys, 4 old and 4 new writers: "
        f"start in {seconds[0]:.2f} s, {last} in {seconds[1]:.2f} s, {len(written):,} rows written meanwhile, longest "
        f"pause {1000 * longest:.0f} ms, {len(written) - len(set(written))} ids twice, no errors"
    )

    assert distinct(written)
    assert rows == 2**DOUBLINGS + len(written)
