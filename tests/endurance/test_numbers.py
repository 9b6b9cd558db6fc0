"""A million numbers without gaps on each database: 8 processes draw and roll back; they and the server are killed.

ALLOCATOR_TEST_NUMBERS=20000 draws fewer. The controls are in `tests/chaos/test_numbers.py`.
"""

import os
import time
from statistics import mean

from support.distinct import none_twice
from support.processes.number_writers import COUNTS, STEPS, WaitingWriter, Writers, check, unnumbered, waited
from support.processes.patience import until

NUMBERS = int(os.environ.get("ALLOCATOR_TEST_NUMBERS", "1000000"))
CLIENT_KILLS, SERVER_KILLS = 100, 10
"""At each step of a transaction about so many clients kill themselves; others are killed at any moment."""
ODDS = CLIENT_KILLS / (NUMBERS / mean(COUNTS))
EVERY = 0.5
"""Seconds between two kills at any moment."""


def test_a_million_numbers_while_clients_and_server_are_killed(kind, place, tmp_path, report):
    url, server = place
    began = time.monotonic()
    with Writers(url, tmp_path / "notes", count=8, scopes=50, odds=ODDS) as writers:
        restarts = writers.write(NUMBERS, server, every=EVERY, server_kills=SERVER_KILLS, name=kind)
    minutes = (time.monotonic() - began) / 60
    found = check(url)
    killed = ", ".join(f"{count} {step}" for step, count in writers.steps.items())
    report(
        f"{kind}: {found.rows:,} numbers of 50 scopes, 1 or 9 in a transaction, in {minutes:.1f} minutes, 8 processes, "
        f"{writers.killed} clients killed ({killed}), server killed {restarts} times: "
        f"{found.gaps} gaps, {found.duplicates} duplicates, {found.ahead} above their counter"
    )

    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= NUMBERS
    assert set(writers.steps) >= set(STEPS[1:])
    assert restarts == SERVER_KILLS or not server


# -- a million rows numbered after their commit; writers, assigners and the server are killed


WAITING_ODDS = 0.003
"""That a process kills itself before a statement."""
WAITING_EVERY = 2.0
"""Seconds between two kills at any moment."""


def test_no_gap_no_duplicate_and_no_row_left_while_writers_assigners_and_server_die(kind, place, tmp_path, report):
    url, server = place
    began = time.monotonic()
    with Writers(url, tmp_path / "notes", count=6, scopes=50, odds=WAITING_ODDS, writer=WaitingWriter) as writers:
        restarts = writers.write(NUMBERS, server, every=WAITING_EVERY, server_kills=SERVER_KILLS, name=kind)
    minutes = (time.monotonic() - began) / 60
    assert until(lambda: unnumbered(url) == 0)  # the commit of a killed client may still be on its way
    found = check(url, waited)
    killed = ", ".join(f"{count} {step}" for step, count in writers.steps.items())
    report(
        f"{kind}: {found.rows:,} rows of 50 scopes numbered after their commit in {minutes:.1f} minutes, 6 processes, "
        f"{writers.killed} killed ({killed}), server killed {restarts} times: {found.gaps} gaps, "
        f"{found.duplicates} duplicates, {found.ahead} above their counter, no row without a number"
    )

    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= writers.written >= NUMBERS
    assert writers.steps["drawing"]  # in the midst of an assignment
    assert restarts == SERVER_KILLS or not server
