"""Numbers without gaps, drawn or assigned after the commit, while clients roll back and are killed, as their server."""

import itertools
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.distinct import none_twice
from support.faults.trouble import planned, troubled
from support.processes.number_writers import (
    STEPS,
    WaitingWriter,
    Writer,
    Writers,
    check,
    drawn_on_its_own,
    read_first,
    unnumbered,
)
from support.processes.patience import until

KINDS = ["postgres", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("sqlite", "mysql", "mariadb"))]
NUMBERS, KILLS = 300, 4
ODDS, LONG_ODDS = 0.02, 0.002
"""That a writer kills itself, at each step."""
EVERY = 1.0
"""Seconds between two kills at any moment, in the long form, of half its time for each kind of writers."""
SECONDS = 60


@pytest.fixture
def writers(place, tmp_path) -> Callable[..., Writers]:
    numbers = itertools.count()
    return lambda **how: Writers(place[0], tmp_path / str(next(numbers)), scopes=3, **how)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
@pytest.mark.parametrize("writer", [Writer, pytest.param(WaitingWriter, marks=pytest.mark.nightly)])
def test_no_gap_and_no_duplicate(kind, place, writers, writer, seed, seconds, long, report):
    url, trouble = place
    with ExitStack() as stack:
        count, odds = (8, LONG_ODDS) if long else (4, ODDS)
        running = stack.enter_context(writers(count=count, writer=writer, odds=odds))
        if long:
            done, following = stack.enter_context(troubled(trouble, planned(seed, seconds / 2)))
            running.kill_for(seconds / 2, EVERY, following)
            report(f"{kind}, {writer.__name__}: database: {dict(done)}")

        def enough() -> bool:
            running.replace_the_ended()
            return running.written >= NUMBERS and running.killed >= KILLS

        assert until(enough, SECONDS)
    if writer is WaitingWriter:
        assert until(lambda: unnumbered(url) == 0)  # the commit of a killed client may still be on its way
    found = check(url, writer.table)
    killed = ", ".join(f"{times} {step}" for step, times in running.steps.items())
    report(f"{kind}, {writer.__name__}: {found}; {running.killed} clients killed ({killed})")
    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= running.written >= NUMBERS
    steps = {"drawing"} if writer is WaitingWriter else set(STEPS[1:])
    assert not long or set(running.steps) >= steps


@pytest.mark.nightly
def test_control_numbers_drawn_on_a_connection_of_their_own_leave_gaps(place, writers):
    with writers(count=4, way=drawn_on_its_own) as running:
        assert until(lambda: running.written >= NUMBERS, SECONDS)
    found = check(place[0])
    none_twice(found.duplicates, found)
    assert found.gaps > NUMBERS // 20  # a fifth is rolled back


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_control_to_read_and_then_write_gives_duplicates(place, writers):
    """On a busy machine the writers of one run may come one after the other."""

    def found() -> bool:
        with writers(count=4, way=read_first) as running:
            assert until(lambda: running.written >= NUMBERS, SECONDS)
        return check(place[0]).duplicates > 0

    assert until(found, SECONDS)
