"""gevent, patched before `import allocator` and after it; an `Allocator` is made after both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.distinct import none_twice

pytest.importorskip("gevent", reason="gevent is not installed")

GREENLETS = """
import sys
from gevent import joinall, monkey, sleep, spawn
url, tag, when = sys.argv[1:]
if when == "early":
    monkey.patch_all()
from allocator import Allocator
if when == "late":
    monkey.patch_all()

def draw():
    drawn = []
    for _ in range(40):
        drawn.append(ids.next_id(tag))
        sleep(0)
    return drawn + list(ids.reserve(tag, 3))

with Allocator(url, step=10, max_step=10, timeout=10) as ids:
    jobs = [spawn(draw) for _ in range(5)]
    joinall(jobs, timeout=30, raise_error=True)
    drawn = [number for job in jobs for number in job.value]
    others = {ids.meteor(), ids.snowflake(), ids.ticket(tag), ids.ticket(tag)}
print(len(drawn), len(set(drawn)), len(others))
"""


CASES = [("sqlite", "early"), ("sqlite", "late"), ("postgres", "early"), ("mysql", "early")]


@pytest.mark.parametrize(("kind", "when"), CASES, indirect=["kind"])
def test_greenlets_draw_as_threads_do(url, tag, when):
    command = [sys.executable, "-W", "ignore", "-c", GREENLETS, url, tag, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parent)

    drawn, different, others = map(int, done.stdout.split())
    none_twice(drawn - different + 4 - others)
    assert drawn == 215
