"""When the command of `allocator worker run` is signalled and killed, and with what the wrapper ends: plain numbers."""

import sys
from signal import SIGKILL, SIGTERM

import pytest

if sys.platform != "linux":
    pytest.skip("needs timers and prctl of Linux", allow_module_level=True)

from allocator.cli.worker_run import END_LEFT, KILL_LEFT, LOOKS, exit_code, next_signal

LEASE = 60.0


def sent(left: float, *, lost: bool = False, was_stopped: bool = False) -> int | None:
    return next_signal(left, LEASE, lost=lost, was_stopped=was_stopped)


def test_the_command_gets_a_signal_while_three_tenths_of_the_lease_are_left_and_sigkill_while_half_of_that_is():
    expected = {60: None, 18.1: None, 18: SIGTERM, 9.1: SIGTERM, 9: SIGKILL, 0: SIGKILL, -100: SIGKILL}

    assert {left: sent(left) for left in expected} == expected


def test_one_signal_is_enough():
    expected = {18: None, 9.1: None, 9: SIGKILL}

    assert {left: sent(left, was_stopped=True) for left in expected} == expected


def test_a_lost_number_may_be_in_other_hands_already():
    assert sent(60.0, lost=True) == sent(60.0, lost=True, was_stopped=True) == SIGKILL


def test_a_wrapper_that_runs_kills_the_command_before_the_kernel_ends_both():
    """It looks often enough to give the number back, and to say why."""
    assert KILL_LEFT - 1 / LOOKS > END_LEFT


def test_the_exit_code_is_the_commands():
    for code, was_stopped, expected in [
        (0, False, 0),
        (7, False, 7),
        (-15, False, 143),
        (-9, True, 137),
        (0, True, 125),
        (3, True, 3),
    ]:
        assert exit_code(code, was_stopped=was_stopped) == expected, (code, was_stopped)
