"""When the command of `allocator worker run` is signalled and killed, and with what the wrapper ends: plain numbers."""

from __future__ import annotations

import pytest

from allocator.rules.command_deadline import LOOKS, Step, exit_code, next_step, until_killed, until_next_look

LEASE = 60.0


def step(left: float, *, lost: bool = False, guarded: bool = True, signalled: bool = False) -> Step:
    return next_step(left, LEASE, lost=lost, guarded=guarded, signalled=signalled)


def test_the_command_gets_a_signal_while_three_tenths_of_the_lease_are_left():
    expected = {60: "run", 18.1: "run", 18: "signal", 6.1: "signal"}

    assert {left: step(left).value for left in expected} == expected


def test_one_signal_is_enough():
    for left in [18.0, 12.0, 6.1]:
        assert step(left, signalled=True) is Step.RUN, left


def test_it_is_killed_while_a_tenth_is_left():
    for left in [6.0, 0.0, -100.0]:
        for signalled in [False, True]:
            assert step(left, signalled=signalled) is Step.KILL, (left, signalled)


def test_a_lost_number_may_be_in_other_hands_already():
    assert step(60.0, lost=True) is step(60.0, lost=True, signalled=True) is Step.KILL


def test_without_its_guard_the_command_is_stopped_in_time():
    assert step(60.0, guarded=False) is Step.SIGNAL
    assert step(60.0, guarded=False, signalled=True) is Step.RUN
    assert step(6.0, guarded=False, signalled=True) is Step.KILL


def test_the_guard_kills_at_the_same_moment():
    for left, seconds in [(60.0, 54.0), (6.5, 0.5), (6.0, 0.0), (-5.0, 0.0)]:
        assert until_killed(left, LEASE) == pytest.approx(seconds), left


def test_the_wrapper_looks_often_enough_to_see_each_limit():
    """Also right before a limit, and never in a busy loop."""
    for tenth in range(-100, 600):
        left = tenth / 10
        for signalled in (False, True):
            pause = until_next_look(left, LEASE, signalled=signalled)
            assert LEASE / LOOKS / 10 <= pause <= LEASE / LOOKS
            limit = LEASE * (0.1 if signalled else 0.3)
            assert left <= limit or left - pause >= limit - LEASE / LOOKS / 10


def test_the_exit_code_is_the_commands():
    for code, stopped, expected in [
        (0, False, 0),
        (7, False, 7),
        (-15, False, 143),
        (-9, True, 137),
        (0, True, 125),
        (3, True, 3),
    ]:
        assert exit_code(code, stopped=stopped) == expected, (code, stopped)
