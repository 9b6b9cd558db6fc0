"""The simulator itself: the same seed is the same history, and a failure is told in a line and made small."""

from __future__ import annotations

import re

import pytest

from simulation.actions import FATES, PROCESSES, SERVERS
from simulation.controls import CONTROLS, broken
from simulation.faces import faces
from simulation.plan import KINDS, draw
from simulation.run import worlds
from simulation.violation import Violation
from simulation.world import World


def history(seed: int) -> tuple[object, ...]:
    world = World(draw(seed))
    try:
        world.run()
        return world.scheduler.events, world.scheduler.random.random(), world.account.counts
    finally:
        world.finish()


def test_a_seed_is_a_history():
    with faces():
        assert [history(seed) for seed in range(3)] == [history(seed) for seed in range(3)]
        assert history(1) != history(2)


def test_a_failure_is_made_small_and_says_how_to_run_it_again():
    control = CONTROLS["no renewal after a fork"]
    with broken(control) as variant, pytest.raises(Violation, match=control.shows) as found:
        worlds(range(100), variant)
    first, again, *steps = str(found.value).splitlines()
    seed = int(first.split()[1].removesuffix(":"))

    assert f"python -m simulation --seed {seed} --steps " in again
    assert [re.findall("kind='(.*?)'", step) for step in steps] == [["fork"]]
    assert worlds([seed])


def test_a_plan_is_made_smaller_by_its_own_words():
    plan = draw(5)
    smaller = plan.only(steps=plan.kept[1:3], tags=1, threads=1, processes=1)

    assert smaller.steps == plan.steps[1:3]
    assert smaller.words.startswith(f"--seed 5 --steps {plan.kept[1]},{plan.kept[2]}")
    assert plan.words == "--seed 5"


def test_every_kind_of_step_is_one_thing():
    assert len({*FATES, *PROCESSES, *SERVERS}) == len(FATES) + len(PROCESSES) + len(SERVERS)
    assert {*KINDS} <= {*FATES, *PROCESSES, *SERVERS}
