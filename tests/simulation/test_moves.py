"""One row a database, one move a failover, and slots: nothing comes twice, and each word is needed for it."""

from __future__ import annotations

import pytest
from support.rules import rule

from simulation.move_controls import CONTROLS, Control
from simulation.moves import drawn, failure, worlds
from simulation.operators import GAPS, REFUSES
from simulation.rows import NODES, TICKETS

WORLDS, SEEDS = 1000, 300
MUST = {
    "add",
    "copies of a member",
    "databases not used",
    "delete",
    "failovers",
    "from a second member",
    "from an old primary",
    "gaps",
    "lists refused",
    "lost",
    "make",
    "moves",
    "refused after a failover",
    "start after",
    REFUSES,
    GAPS,
    NODES,
    TICKETS,
}
TIMES = 20


@rule(8)
def test_no_number_comes_twice_whatever_forgets_lags_or_is_added():
    counts = worlds(range(WORLDS))

    assert {what for what in MUST if counts[what] < TIMES} == set()


def shows(control: Control) -> str:
    """What the scene breaks, or the first world that breaks something."""
    if control.scene:
        assert not failure(control.clusters, control.scene)
        return failure(control.clusters, control.scene, control.out)
    found = (failure(*drawn(2 * seed + control.several), control.out) for seed in range(SEEDS))
    return next(filter(None, found), "")


@rule(8)
@pytest.mark.parametrize("name", CONTROLS)
def test_control_without_a_word_one_does(name: str):
    assert "came twice" in shows(CONTROLS[name])
