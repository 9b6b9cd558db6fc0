"""Numbers without gaps, while clients roll back and are killed, as their server."""

import itertools
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.distinct import none_twice
from support.faults.trouble import planned, troubled
from support.processes.number_writers import Writers, check, drawn_on_its_own, read_first
from support.processes.patience import until

KINDS = ["postgres", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("sqlite", "mysql", "mariadb"))]
NUMBERS, KILLS = 300, 4
EVERY = 1.0
"""Seconds between two kills at any moment, in the long form."""
SECONDS = 60


@pytest.fixture
def writers(place, tmp_path) -> Callable[..., Writers]:
    numbers = itertools.count()
    return lambda **how: Writers(place[0], tmp_path / str(next(numbers)), **how)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_no_gap_and_no_duplicate(kind, place, writers, seed, seconds, long, report):
    url, trouble = place
    with ExitStack() as stack:
        running = stack.enter_context(writers(count=8 if long else 4, seed=seed))
        if long:
            done, following = stack.enter_context(troubled(trouble, planned(seed, seconds)))
            running.kill_for(seconds, EVERY, following)
            report(f"{kind}: database: {dict(done)}")

        def enough() -> bool:
            running.kill_one()
            return running.written >= NUMBERS and running.killed >= KILLS

        assert until(enough, SECONDS, every=0.3)
    found = check(url)
    report(f"{kind}: {found}; {running.killed} clients killed")
    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= running.written >= NUMBERS


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
