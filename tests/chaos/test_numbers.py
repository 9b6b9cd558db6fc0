"""Numbers without gaps while the clients that draw them roll back and are killed: small; see `tests/endurance`."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.processes.number_writers import OnItsOwn, ReadFirst, Writers, check
from support.processes.patience import until

KINDS = ["postgres", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("sqlite", "mysql", "mariadb"))]
NUMBERS, KILLS = 300, 4
ODDS = 0.02
"""That a writer kills itself, at each step."""
SECONDS = 60


@pytest.fixture
def writers(url: str, tmp_path: Path) -> Callable[..., Writers]:
    numbers = count()
    return lambda **how: Writers(url, tmp_path / str(next(numbers)), count=4, scopes=3, **how)


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_no_gap_and_no_duplicate_when_clients_roll_back_and_are_killed(url, writers):
    with writers(odds=ODDS) as running:

        def enough() -> bool:
            running.replace_the_ended()
            return running.written >= NUMBERS and running.killed >= KILLS

        assert until(enough, SECONDS)
    found = check(url)

    none_twice(found.duplicates, found)
    assert found.wrong == 0
    assert found.rows >= NUMBERS


@pytest.mark.nightly
def test_control_numbers_drawn_on_a_connection_of_their_own_leave_gaps(url, writers):
    with writers(way=OnItsOwn) as running:
        assert until(lambda: running.written >= NUMBERS, SECONDS)
    found = check(url)

    none_twice(found.duplicates, found)
    assert found.gaps > NUMBERS // 20  # a fifth is rolled back


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_control_to_read_and_then_write_gives_duplicates(url, writers):
    """On a busy machine the writers of one run may come one after the other."""

    def found() -> bool:
        with writers(way=ReadFirst) as running:
            assert until(lambda: running.written >= NUMBERS, SECONDS)
        return check(url).duplicates > 0

    assert until(found, SECONDS)
