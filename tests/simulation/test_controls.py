"""A simulator that finds nothing may be blind: with each of these rules broken it must find that, and soon."""

from __future__ import annotations

import re

import pytest

from simulation.controls import CONTROLS, broken
from simulation.faces import faces
from simulation.plan import draw
from simulation.run import failure

SEEDS = 300
"""Every broken rule shows within so many worlds; the one in which it is known to show is tried before them."""


@pytest.mark.parametrize("rule", CONTROLS)
def test_a_broken_rule_is_found(rule: str):
    control = CONTROLS[rule]
    with broken(control) as variant, faces():
        ends = (failure(draw(seed), variant) for seed in (control.seed, *range(SEEDS)))
        found = next(filter(None, ends), None)

    assert found is not None
    assert re.search(control.shows, str(found)), found
