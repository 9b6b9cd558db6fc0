"""Many worlds of plans, one after the other; one that fails is made as small as it could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from simulation.faces import faces
from simulation.plan import Plan, draw
from simulation.seeds import fewest, reached
from simulation.variant import Variant
from simulation.violation import Violation
from simulation.world import run


def failure(plan: Plan, variant: Variant | None = None) -> Exception | None:
    """What a world ends with, None when it ends well."""
    try:
        run(plan, variant)
    except Exception as error:
        return error
    return None


def shrunk(plan: Plan, variant: Variant | None = None) -> Plan:
    """The smallest that still fails. Every one that is tried is a world of its own, run from the beginning."""
    plan = plan.only(steps=tuple(fewest(plan.kept, lambda kept: fails(plan.only(steps=tuple(kept)), variant))))
    for name, many in (("tags", len(plan.tags)), ("threads", plan.threads), ("processes", plan.processes)):
        for fewer in range(many - 1, 0, -1):
            if fails(smaller := plan.only(**{name: fewer}), variant):
                plan = smaller
    return plan


def fails(plan: Plan, variant: Variant | None) -> bool:
    return failure(plan, variant) is not None


def one_world(seed: int, variant: Variant | None = None) -> Counter[str]:
    """Whatever it ends with is told with the smallest plan that fails. If that does not, the simulator has a fault."""
    try:
        return run(draw(seed), variant).counts
    except Exception as error:
        plan = shrunk(draw(seed), variant)
        last = failure(plan, variant) or error
        again = f"again: PYTHONPATH=tests python -m simulation {plan.words}"
        steps = "".join(f"\n    {step}" for step in plan.steps)
        raise Violation(f"{type(last).__name__}: {last}\n{again}{steps}") from error


def worlds(seeds: Iterable[int], variant: Variant | None = None) -> Counter[str]:
    with faces():
        return reached(partial(one_world, variant=variant), seeds)
