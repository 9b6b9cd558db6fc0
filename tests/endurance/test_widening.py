"""A key of INT with a million rows, and the column that references it, become BIGINT as `docs/widening.md` says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.documents.widening import Step, widen
from support.processes.takeover_writers import writing
from support.servers.administrator import execute, values

ROWS = 1_000_000
EACH = 50
"""Rows of each of eight writers in each step, beside one that changes and deletes."""
AT_ONCE = {
    "postgres": "ALTER TABLE events ALTER COLUMN id TYPE bigint",
    "mysql": "ALTER TABLE events MODIFY id BIGINT NOT NULL AUTO_INCREMENT",
    "mariadb": "ALTER TABLE events MODIFY id BIGINT NOT NULL AUTO_INCREMENT, LOCK=SHARED",
}
EVENTS = "CREATE TABLE events (id {} PRIMARY KEY, what VARCHAR(20))"
COUNTED = {"postgres": "SERIAL"}


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_a_million_rows_under_eight_writers(kind: str, tmp_path: Path, report: Callable[[str], None]):
    steps: dict[str, Step] = {}
    for step in widen(kind, tmp_path, ROWS, EACH, count=8):
        before = steps.get(step.title, Step(step.title, 0.0, 0.0))
        steps[step.title] = Step(step.title, before.seconds + step.seconds, max(before.pause, step.pause))

    told = [f"{step.title}: {step.seconds:.1f} s, longest pause {1000 * step.pause:.0f} ms" for step in steps.values()]
    report(f"{kind}: widening a key of {ROWS:,} rows with 500,000 references, no errors: {'; '.join(told)}")


@pytest.mark.parametrize("kind", ["mariadb"])
def test_online_on_mariadb(kind: str, empty: str, report: Callable[[str], None]):
    """One statement, where no foreign key is in the way; from MariaDB 11.2 on."""
    counted = "INT AUTO_INCREMENT PRIMARY KEY"
    execute(empty, f"CREATE TABLE orders (id {counted}, what VARCHAR(20))")
    execute(empty, f"CREATE TABLE line (id {counted}, order_id INT NOT NULL)")
    execute(empty, "INSERT INTO orders (what) VALUES ('tea')")
    execute(empty, *["INSERT INTO orders (what) SELECT what FROM orders"] * 20)
    with writing(empty) as writers:
        writers.add(8)
        writers.wait_for(EACH)
        writers.longest_pause()
        began = time.monotonic()
        execute(empty, "ALTER TABLE orders MODIFY id BIGINT NOT NULL AUTO_INCREMENT, ALGORITHM=COPY, LOCK=NONE")
        seconds = time.monotonic() - began
        writers.wait_for(EACH)
        pause = writers.longest_pause()
        writers.stop()
    report(f"{kind}: 1,048,576 rows, LOCK=NONE: {seconds:.1f} s, longest pause {1000 * pause:.0f} ms, no errors")

    written, rows = writers.ids(), values(empty, "SELECT id FROM orders")
    assert len(rows) == 2**20 + len(written)
    assert set(written) <= set(rows)


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_in_one_statement(kind: str, empty: str, report: Callable[[str], None]):
    execute(empty, EVENTS.format(COUNTED.get(kind, "INT AUTO_INCREMENT")), "INSERT INTO events (what) VALUES ('tea')")
    execute(empty, *["INSERT INTO events (what) SELECT what FROM events"] * 20)
    began = time.monotonic()
    execute(empty, AT_ONCE[kind])
    report(f"{kind}: 1,048,576 rows without references, in one statement: {time.monotonic() - began:.1f} s")
