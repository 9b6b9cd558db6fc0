"""A million numbers without gaps on each database, drawn or assigned after the commit; clients and server are killed.

ALLOCATOR_TEST_NUMBERS=20000 draws fewer. The controls are in `tests/chaos/test_numbers.py`.
"""

import os
import time
from statistics import mean

import pytest
from support.distinct import none_twice
from support.processes.number_writers import COUNTS, STEPS, WaitingWriter, Writer, Writers, check, unnumbered
from support.processes.patience import until

NUMBERS = int(os.environ.get("ALLOCATOR_TEST_NUMBERS", "1000000"))
CLIENT_KILLS, SERVER_KILLS = 100, 10
"""At each step of a transaction about so many clients kill themselves; others are killed at any moment."""
WRITERS = [(Writer, 8, CLIENT_KILLS / (NUMBERS / mean(COUNTS)), 0.5), (WaitingWriter, 6, 0.003, 2.0)]
"""How many, their odds to kill themselves at a step, and the seconds between two kills at any moment."""


@pytest.mark.parametrize(("writer", "count", "odds", "every"), WRITERS)
def test_no_gap_and_no_duplicate_while_all_are_killed(kind, place, writer, count, odds, every, tmp_path, report):
    url, server = place
    began = time.monotonic()
    with Writers(url, tmp_path / "notes", count=count, scopes=50, odds=odds, writer=writer) as writers:
        restarts = writers.write(NUMBERS, server, every=every, server_kills=SERVER_KILLS, name=kind)
    minutes = (time.monotonic() - began) / 60
    if writer is WaitingWriter:
        assert until(lambda: unnumbered(url) == 0)  # the commit of a killed client may still be on its way
    found = check(url, writer.table)
    killed = ", ".join(f"{count} {step}" for step, count in writers.steps.items())
    report(
        f"{kind}: {found.rows:,} numbers of 50 scopes by {count} of {writer.__name__} in {minutes:.1f} minutes, "
        f"{writers.killed} clients killed ({killed}), server killed {restarts} times: "
        f"{found.gaps} gaps, {found.duplicates} duplicates, {found.ahead} above their counter"
    )
    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= writers.written >= NUMBERS
    assert set(writers.steps) >= ({"drawing"} if writer is WaitingWriter else set(STEPS[1:]))
    assert restarts == SERVER_KILLS or not server
