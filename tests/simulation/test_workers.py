"""Pods that lease worker numbers: no number is held by two, in any world; and each broken part of the rule shows."""

from __future__ import annotations

import pytest

from simulation.patches import patched
from simulation.violation import Violation
from simulation.worker_controls import CONTROLS
from simulation.workers import LENGTH, Rules, overlaps, worlds

FEW, MANY = 40, 1000
SEEDS = 200
"""Every broken part shows within so many worlds."""
MUST = {
    "answers lost",
    "asked an old server",
    "commits forgotten",
    "DatabaseUnavailable",
    "failover",
    "InvalidSetting",
    "kill",
    "leased",
    "lost by its clocks",
    "lost by the database",
    "NodeIdsExhausted",
    "pause",
    "server steps",
    "step",
    "stop",
    "took over",
}


def test_no_number_is_held_by_two_and_no_second_is_used_twice():
    counts = worlds(range(100), FEW)

    assert {what for what in MUST if counts[what] < 100} == set()


def test_nor_among_a_thousand_pods():
    assert worlds(range(2), MANY)["leased"] > MANY


def test_nor_where_the_clock_of_the_server_alone_is_wrong_by_any_time():
    counts = worlds(range(100), FEW, Rules(longest_step=50 * LENGTH, walls_are_right=True))

    assert counts["took over"] > 100


@pytest.mark.parametrize("name", CONTROLS)
def test_control_a_broken_rule_is_found(name: str):
    control = CONTROLS[name]
    with patched(control.patches), pytest.raises(Violation, match="held by two"):
        worlds(range(SEEDS), FEW, control.rules)


SPANS = [
    ([(0, 5, "a"), (5, 9, "b")], 0),
    ([(0, 5, "a"), (4, 9, "b")], 1),
    ([(0, 9, "a"), (1, 2, "a"), (5, 6, "b")], 1),
    ([(0, 9, "a"), (1, 2, "b"), (3, 4, "a"), (8, 10, "c")], 2),
    ([(0, 3, "a"), (2, 2, "b"), (3, 4, "a")], 0),
]


def test_control_overlaps_are_counted():
    assert [(spans, overlaps(spans)) for spans, _ in SPANS] == SPANS
