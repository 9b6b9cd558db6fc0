"""How long something lasts."""

from __future__ import annotations

from math import inf

import pytest

from allocator.rules.days_left import DAY, Horizon


def test_at_a_steady_rate_the_days_are_what_is_left_by_what_goes():
    horizon = Horizon(0, 0.0)

    assert horizon.days_left(1000, 11_000, DAY) == pytest.approx(10)


def test_what_is_not_used_lasts_for_ever():
    horizon = Horizon(500, 0.0)

    assert horizon.days_left(500, 1000, DAY) == inf
    assert horizon.days_left(500, 1000, 0.0) == inf
    assert horizon.days_left(400, 1000, DAY) == inf


def test_what_is_used_up_lasts_no_day():
    assert Horizon(0, 0.0).days_left(1000, 1000, DAY) == 0


def test_a_rate_of_long_ago_is_forgotten():
    horizon = Horizon(0, 0.0)
    for day in range(1, 30):
        horizon.record(1_000_000 if day < 2 else 1_000_000 + day, day * DAY)

    assert horizon.days_left(1_000_030, 1_000_130, 30 * DAY) == pytest.approx(100, rel=0.2)


def test_what_was_seen_for_a_minute_says_nothing_yet():
    horizon = Horizon(0, 0.0)

    assert horizon.days_left(10, 1000, 60.0) == inf
    assert horizon.days_left(10, 1000, 3600.0) < inf


def test_a_counter_that_was_raised_was_not_used():
    horizon = Horizon(0, 0.0)
    for minute in range(1, 121):
        horizon.record(minute + (2**53 if minute > 60 else 0), 60.0 * minute)
    value = 2**53 + 120

    assert horizon.days_left(value, value + 1440, 7200.0) == pytest.approx(1, rel=0.1)
