"""Pods that lease worker numbers: no number is held by two, in any world; and each broken part of the rule shows."""

from __future__ import annotations

import pytest
from support.distinct import none_twice

from simulation.patches import patched
from simulation.worker_controls import CONTROLS
from simulation.workers import LENGTH, Rules, World, overlaps, worlds

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
    counts, held, pairs = worlds(range(100), FEW)

    none_twice(held + pairs)
    assert {what for what in MUST if counts[what] < 100} == set()


def test_nor_among_a_thousand_pods():
    counts, held, pairs = worlds(range(2), MANY)

    none_twice(held + pairs)
    assert counts["leased"] > MANY


def test_nor_where_the_clock_of_the_server_alone_is_wrong_by_any_time():
    counts, held, pairs = worlds(range(100), FEW, Rules(longest_step=50 * LENGTH, walls_are_right=True))

    none_twice(held + pairs)
    assert counts["took over"] > 100


@pytest.mark.parametrize("name", CONTROLS)
def test_control_a_broken_rule_is_found(name: str):
    control = CONTROLS[name]
    with patched(control.patches):
        found = (World(seed, FEW, control.rules).run() for seed in range(SEEDS))

        assert any(world.held_twice() or world.pairs_twice() for world in found)


SPANS = [
    ([(0, 5, "a"), (5, 9, "b")], 0),
    ([(0, 5, "a"), (4, 9, "b")], 1),
    ([(0, 9, "a"), (1, 2, "a"), (5, 6, "b")], 1),
    ([(0, 9, "a"), (1, 2, "b"), (3, 4, "a"), (8, 10, "c")], 2),
    ([(0, 3, "a"), (2, 2, "b"), (3, 4, "a")], 0),
]


def test_control_overlaps_are_counted():
    assert [(spans, overlaps(spans)) for spans, _ in SPANS] == SPANS
