"""Numbers that are assigned after the commit: processes that write rows and assign are killed at any statement.

ALLOCATOR_TEST_WAITING_SECONDS=600 takes longer. The controls are in `tests/simulation` and `tests/contract`.
"""

from __future__ import annotations

import os
import time

from support.distinct import none_twice
from support.processes.number_writers import check
from support.processes.patience import until
from support.processes.waiting_writers import WaitingWriters, rows, unnumbered

SECONDS = float(os.environ.get("ALLOCATOR_TEST_WAITING_SECONDS", "40"))
ODDS = 0.002
"""That a process kills itself before a statement."""
EVERY = 0.5
"""Seconds between two kills at any moment."""


def test_no_gap_no_duplicate_and_no_row_left_while_writers_and_assigners_are_killed(kind, url, report):
    end = time.monotonic() + SECONDS
    with WaitingWriters(url, count=6, scopes=5, odds=ODDS) as writers:
        while time.monotonic() < end:
            writers.kill_one()
            writers.replace_the_killed()
            time.sleep(EVERY)
        written, killed = writers.written, writers.killed
    assert until(lambda: unnumbered(url) == 0)  # the commit of a killed client may still be on its way
    found = check(url, rows)
    told = ", ".join(f"{count} {step}" for step, count in killed.items())
    report(
        f"{kind}: {found.rows:,} rows of 5 scopes numbered after their commit in {SECONDS:g} s, 6 processes, "
        f"{killed.total()} killed ({told}): {found.gaps} gaps, {found.duplicates} duplicates, "
        f"{found.ahead} above their counter, no row without a number"
    )

    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= written > 100
    assert killed["drawing"]  # in the midst of an assignment
