"""The simulator itself: the same seed is the same history, and a failure is told in a line and made small."""

import re

import pytest

from simulation.controls import CONTROLS, broken, out
from simulation.faces import faces
from simulation.moves import MOVES
from simulation.plan import draw
from simulation.seeds import Violation
from simulation.world import PLANS, World

SEEDS = (0, 1, 4, 12)
"""Of the last two processes wait for a move."""


def history(seed: int) -> tuple[object, ...]:
    world = World(draw(seed))
    try:
        world.run()
        return world.scheduler.events, world.scheduler.random.random(), world.account.counts
    finally:
        world.finish()


def test_a_seed_is_a_history():
    with faces():
        assert [history(seed) for seed in SEEDS] == [history(seed) for seed in SEEDS]
        assert history(1) != history(2)


def test_a_failure_is_made_small_and_says_how_to_run_it_again():
    (control,) = (one for one in CONTROLS if one.name == "no renewal after a fork")
    with broken(control.how), pytest.raises(Violation, match=control.shows) as found:
        PLANS.worlds(range(100))
    first, _, again, *steps = str(found.value).splitlines()
    seed = int(first.split()[2].removesuffix(":"))

    assert f"python -m simulation --seed {seed} --steps " in again
    assert [re.findall("kind='(.*?)'", step) for step in steps] == [["fork"]]
    assert PLANS.worlds([seed])


def test_so_are_the_acts_of_a_world_of_moves():
    with broken(out("a key for each move")), pytest.raises(Violation, match="came twice") as found:
        MOVES.worlds(range(100))
    _, again, *acts = str(found.value).splitlines()

    assert "came twice" in again
    assert 1 < len(acts) < 10


def test_a_plan_is_made_smaller_by_its_own_words():
    plan = draw(5)
    smaller = plan.only(steps=plan.kept[1:3], tags=1, threads=1, processes=1)

    assert smaller.steps == plan.steps[1:3]
    assert smaller.words.startswith(f"--seed 5 --steps {plan.kept[1]},{plan.kept[2]}")
    assert plan.words == "--seed 5"
