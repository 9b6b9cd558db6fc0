"""The failover rule over years: what it promises, and that it is needed for that."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from support.distinct import none_twice

from allocator.schemes import failover
from simulation.failovers import BEGIN, HOUR, SECOND, Traffic, Years, drawn, is_promised

YEARS = 2000
BUSY = Traffic(rate=100.0, processes=5)


def test_no_number_is_in_two_windows():
    found = [drawn(seed) for seed in range(YEARS)]

    none_twice(seed for seed, years in enumerate(found) if years.overlap())
    assert sum(len(years.windows) for years in found) > 10 * YEARS
    assert sum(forgotten(years) for years in found) > YEARS


def forgotten(years: Years) -> int:
    """How many failovers forgot the one before: two servers went on from one row."""
    ends = [window[0] for window in years.windows]
    return sum(later < earlier + failover.FLOOR for earlier, later in pairwise(ends))


def twice(first_lag: int, second_lag: int, traffic: Traffic = BUSY, days: int = 10) -> Years:
    """Two failovers, a minute apart, after some days."""
    years = Years(traffic)
    now = BEGIN + days * 24 * HOUR
    years.fail_over(now, first_lag)
    years.fail_over(now + 60 * SECOND, second_lag)
    years.end(now + 1000 * HOUR)
    return years


def test_a_second_failover_that_knows_nothing_of_the_first_lands_above_it():
    none_twice(twice(SECOND, 90 * SECOND).overlap())


@pytest.mark.parametrize("name", ["gap", "the moment"])
def test_control_without_the_rule_numbers_are_in_two_windows(name):
    of_nothing = {"gap": ("gap", lambda tag, reach, at: 0), "the moment": ("PERIOD_MS", 10**18)}
    with patch.object(failover, *of_nothing[name]):
        assert twice(SECOND, 90 * SECOND).overlap() > 0


def test_control_of_what_is_not_promised_more_forgotten_than_ever_given():
    years = Years(Traffic(rate=50_000.0))
    now = BEGIN + 600 * SECOND
    assert not is_promised(years, now, 500 * SECOND)
    years.fail_over(now, 500 * SECOND)
    years.end(now + HOUR)

    assert years.overlap() > 0


def test_control_of_what_is_not_promised_faster_than_the_moment_between_two_failovers():
    years = twice(SECOND, 90 * SECOND, Traffic(rate=20_000.0), days=0)

    assert years.overlap() > 0
