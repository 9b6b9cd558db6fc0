"""A failover or an end between any two statements of a verb: nothing comes twice, and each fence is needed for it."""

from __future__ import annotations

import re

import pytest

from simulation.between import worlds
from simulation.between_controls import CONTROLS
from simulation.patches import patched
from simulation.violation import Violation

WORLDS, SEEDS = 60, 300
MUST = {
    "DatabaseUnavailable",
    "LeaseLost",
    "create_above",
    "make",
    "remove",
    "failovers",
    "kills",
    "made by a migration",
    "migrations refused",
    "node",
    "number",
    "repair",
    "restores",
    "set_tag",
    "ticket a",
    "upgrade",
    "worker",
}


def test_no_id_comes_twice_wherever_a_server_or_process_ends():
    counts = worlds(range(WORLDS))

    assert {what for what in MUST if not counts[what]} == set()


@pytest.mark.parametrize("name", CONTROLS)
def test_control_without_a_fence_one_does(name: str):
    control = CONTROLS[name]
    with patched(control.patches), pytest.raises(Violation) as found:
        worlds([control.seed, *range(SEEDS)])

    assert re.search(control.shows, str(found.value)), found.value
