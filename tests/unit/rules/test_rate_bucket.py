"""The rule of rates: one number, and time that is an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.rules.rate_bucket import BURST, pause, used


def served(requests: list[tuple[float, int]], rate: float) -> list[int]:
    """The costs of those that were let in."""
    full_at, let_in = 0.0, []
    for now, cost in requests:
        if pause(full_at, now) == 0:
            full_at = used(full_at, now, cost, rate)
            let_in.append(cost)
    return let_in


def test_a_burst_of_a_second_is_let_in_at_once():
    assert len(served([(100.0, 1)] * 50, 8)) == 9


def test_the_pause_is_exactly_what_is_needed():
    full_at = used(0.0, 100.0, 30, 10)

    assert pause(full_at, 100.0) == pytest.approx(2.0)
    assert pause(full_at, 101.999) == pytest.approx(0.001)
    assert pause(full_at, 102.0) == 0


def test_one_that_is_larger_than_the_burst_is_paid_for_afterwards():
    full_at = used(0.0, 100.0, 1_000_000, 1000)

    assert pause(full_at, 100.0) == pytest.approx(1000 - BURST)


def test_what_is_not_used_is_not_saved_up_beyond_the_burst():
    requests = [(0.0, 1), *[(1000.0, 1)] * 50]

    assert len(served(requests, 8)) == 10


@given(
    st.lists(st.tuples(st.floats(0, 60), st.integers(1, 40)), max_size=300),
    st.sampled_from([1, 3.0, 10, 1000]),
)
def test_over_any_time_no_more_than_the_rate_and_the_burst_come_through(requests, rate):
    requests.sort()
    let_in = served(requests, rate)
    if let_in:
        time = requests[-1][0] - requests[0][0]
        assert sum(let_in) - let_in[-1] <= rate * (time + BURST) + max(let_in) + 1e-6
