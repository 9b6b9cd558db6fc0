"""The rule of rates: one number, and time that is an argument."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.errors import TooManyRequests
from allocator.rules.token import Token
from allocator.service.auth import RARE_BURST, RARE_SECONDS, Principal

TOKEN = Token(1, "x", "00", ("draw",), ("*",), datetime.fromtimestamp(0, UTC))


def served(requests: list[float]) -> int:
    """How many of them are admitted."""
    principal, admitted = Principal(TOKEN), 0
    for now in requests:
        try:
            principal.admit_rare(now)
        except TooManyRequests:
            continue
        admitted += 1
    return admitted


def test_a_burst_is_admitted_at_once_and_an_unused_rate_is_not_saved_beyond_it():
    assert served([100.0] * 50) == RARE_BURST + 1
    assert served([0.0, *[1000.0] * 50]) == RARE_BURST + 2


def test_the_pause_is_exactly_what_is_needed():
    principal = Principal(TOKEN)
    for _ in range(RARE_BURST + 1):
        principal.admit_rare(100.0)
    with pytest.raises(TooManyRequests) as refused:
        principal.admit_rare(100.25)

    assert refused.value.seconds == pytest.approx(RARE_SECONDS - 0.25)
    principal.admit_rare(100.25 + refused.value.seconds)


@given(st.lists(st.floats(0, 60), max_size=300))
def test_over_any_time_no_more_than_the_rate_and_the_burst_come_through(requests):
    requests.sort()
    if requests:
        passed = requests[-1] - requests[0]
        assert served(requests) <= passed / RARE_SECONDS + RARE_BURST + 1 + 1e-6
