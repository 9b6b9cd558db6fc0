"""A simulator that finds nothing may be blind: with each of these rules broken it must find that, and soon."""

from __future__ import annotations

import re

import pytest

from simulation.controls import CONTROLS, broken
from simulation.run import simulate

SEEDS = 300
"""Every broken rule shows within so many worlds."""


@pytest.mark.parametrize("rule", CONTROLS)
def test_a_broken_rule_is_found(rule: str):
    with broken(CONTROLS[rule]) as variant:
        _, found = simulate(range(SEEDS), variant)

    assert found is not None
    assert re.search(CONTROLS[rule].shows, found.error), found.error
