"""Alarms by absolute clocks."""

from __future__ import annotations

import select
import sys
import time

import pytest

if sys.platform != "linux":
    pytest.skip("needs timerfd of Linux", allow_module_level=True)

from allocator.runtime.linux import CLOCK_BOOTTIME, CLOCK_REALTIME, Alarm

CLOCKS = [(CLOCK_BOOTTIME, time.CLOCK_BOOTTIME), (CLOCK_REALTIME, time.CLOCK_REALTIME)]


def rings(alarm: Alarm, seconds: float) -> bool:
    return bool(select.select([alarm], [], [], seconds)[0])


def test_an_alarm_rings_at_the_time_of_its_clock_and_not_before():
    for clock, same in CLOCKS:
        alarm = Alarm(clock)
        alarm.set(time.clock_gettime(same) + 3600)
        assert not rings(alarm, 0), (clock, same)

        alarm.set(time.clock_gettime(same) + 0.01)
        assert rings(alarm, 60), (clock, same)
        assert time.clock_gettime(same) > 0, (clock, same)
        alarm.hush()
        assert not rings(alarm, 0), (clock, same)


def test_a_time_that_has_passed_rings_at_once():
    for past in [0.0, -1.0, 1.0]:
        alarm = Alarm(CLOCK_REALTIME)
        alarm.set(past)

        assert rings(alarm, 60), past


def test_an_alarm_moves_on_when_it_is_set_again():
    """A renewal came: what the alarm was set to before does not ring."""
    alarm = Alarm(CLOCK_BOOTTIME)
    alarm.set(0.0)
    assert rings(alarm, 60)
    alarm.set(time.clock_gettime(time.CLOCK_BOOTTIME) + 3600)

    assert not rings(alarm, 0)
