"""A million rows numbered after their commit: writers and assigners are killed at any statement, and the server too.

ALLOCATOR_TEST_NUMBERS=200000 numbers fewer. The controls are in `tests/simulation` and `tests/contract`.
"""

from __future__ import annotations

import os
import time

from support.distinct import none_twice
from support.processes.number_writers import check
from support.processes.patience import until
from support.processes.waiting_writers import WaitingWriters, rows, unnumbered

NUMBERS = int(os.environ.get("ALLOCATOR_TEST_NUMBERS", "1000000"))
SERVER_KILLS = 10
ODDS = 0.003
"""That a process kills itself before a statement."""
EVERY = 2.0
"""Seconds between two kills at any moment."""


def test_no_gap_no_duplicate_and_no_row_left_while_writers_assigners_and_server_are_killed(kind, place, report):
    url, server = place
    began = time.monotonic()
    with WaitingWriters(url, count=6, scopes=50, odds=ODDS) as writers:
        restarts = writers.write(NUMBERS, server, every=EVERY, server_kills=SERVER_KILLS, name=kind)
    minutes = (time.monotonic() - began) / 60
    assert until(lambda: unnumbered(url) == 0)  # the commit of a killed client may still be on its way
    found = check(url, rows)
    killed = ", ".join(f"{count} {step}" for step, count in writers.killed.items())
    report(
        f"{kind}: {found.rows:,} rows of 50 scopes numbered after their commit in {minutes:.1f} minutes, 6 processes, "
        f"{writers.killed.total()} killed ({killed}), server killed {restarts} times: {found.gaps} gaps, "
        f"{found.duplicates} duplicates, {found.ahead} above their counter, no row without a number"
    )

    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= writers.written >= NUMBERS
    assert writers.killed["drawing"]  # in the midst of an assignment
    assert restarts == SERVER_KILLS or not server
