"""The simulator itself: the same seed is the same history, and a failure is told in a line and made small."""

from __future__ import annotations

from simulation.actions import FATES, PROCESSES, SERVERS
from simulation.controls import CONTROLS, broken
from simulation.faces import faces
from simulation.plan import KINDS, draw
from simulation.run import lines, simulate
from simulation.shrink import failure
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
    with broken(CONTROLS["no renewal after a fork"]) as variant:
        _, found = simulate(range(100), variant)
        assert found is not None
        assert [step.kind for step in found.plan.steps] == ["fork"]
        assert f"python -m simulation --seed {found.plan.seed}" in lines(found)
        with faces():
            assert failure(found.plan, variant) is not None
    with faces():
        assert failure(found.plan) is None


def test_a_plan_is_made_smaller_by_its_own_words():
    plan = draw(5)
    smaller = plan.only(steps=plan.kept[1:3], tags=1, threads=1, processes=1)

    assert smaller.steps == plan.steps[1:3]
    assert smaller.words.startswith(f"--seed 5 --steps {plan.kept[1]},{plan.kept[2]}")
    assert plan.words == "--seed 5"


def test_every_kind_of_step_is_one_thing():
    assert len({*FATES, *PROCESSES, *SERVERS}) == len(FATES) + len(PROCESSES) + len(SERVERS)
    assert {*KINDS} <= {*FATES, *PROCESSES, *SERVERS}
