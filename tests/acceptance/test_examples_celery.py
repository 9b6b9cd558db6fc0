"""The example of a Celery worker, with two processes and no server."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from support.distinct import distinct
from support.processes.prefork import celery, results

EXAMPLE = Path(__file__).parents[2] / "examples" / "celery_worker"
TASKS, EACH = 16, 25

pytest.importorskip("celery")


def test_tasks_of_two_processes_insert_rows_and_none_twice(tmp_path):
    here = {"SHOP_FOLDER": str(tmp_path), "PYTHONPATH": str(EXAMPLE)}
    ask = [sys.executable, str(EXAMPLE / "ask.py"), str(TASKS)]
    subprocess.run(ask, cwd=tmp_path, env=os.environ | here, check=True, timeout=60)
    found = results(celery("tasks"), tmp_path, tmp_path / "results", TASKS, **here)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as rows:
        stored = dict(rows.execute("SELECT id, process FROM orders").fetchall())
    drawn = [number for numbers in found for number in numbers]
    processes = Counter(stored[number] for number in drawn)

    assert len(found) == TASKS, (tmp_path / "log").read_text()
    assert distinct(drawn) == TASKS * EACH
    assert len(stored) == len(drawn) + 1
    assert stored.keys() - set(drawn) == {1}  # of the parent
    assert len(processes) == 2
