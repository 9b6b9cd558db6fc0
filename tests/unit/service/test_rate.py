"""The rule of rates: one number, and time that is an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.service.auth import RateLimit

BURST = 20.0


def served(requests: list[float], rate: float) -> int:
    """How many of them are admitted."""
    limit, admitted = RateLimit(rate, BURST), 0
    for now in requests:
        if limit.wait(now) == 0:
            limit.use(now)
            admitted += 1
    return admitted


def test_a_burst_is_admitted_at_once():
    assert served([100.0] * 50, 1) == BURST + 1


def test_the_pause_is_exactly_what_is_needed():
    limit = RateLimit(1 / 15, BURST)
    limit.use(100.0)
    limit.use(100.0)

    assert limit.wait(100.0) == pytest.approx(10.0)
    assert limit.wait(109.999) == pytest.approx(0.001)
    assert limit.wait(110.001) == 0


def test_an_unused_rate_is_not_saved_beyond_the_burst():
    assert served([0.0, *[1000.0] * 50], 1) == BURST + 2


@given(st.lists(st.floats(0, 60), max_size=300), st.sampled_from([1, 3.0, 10, 1000]))
def test_over_any_time_no_more_than_the_rate_and_the_burst_come_through(requests, rate):
    requests.sort()
    if requests:
        time = requests[-1] - requests[0]
        assert served(requests, rate) <= rate * (time + BURST) + 1 + 1e-6
