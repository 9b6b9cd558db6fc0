"""A plan that fails, made smaller: whatever can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Iterator

from simulation.plan import Plan
from simulation.variant import Variant
from simulation.world import run

TRIES = 300


def failure(plan: Plan, variant: Variant | None = None) -> Exception | None:
    """What a world ends with, None when it ends well."""
    try:
        run(plan, variant)
    except Exception as error:
        return error
    return None


def shrunk(plan: Plan, variant: Variant | None = None) -> Plan:
    """The smallest that was found. Every one that is tried is a world of its own, run from the beginning."""
    tries, went_on = TRIES, True
    while went_on and tries > 0:
        went_on = False
        for smaller in smaller_ones(plan):
            tries -= 1
            if failure(smaller, variant) is not None:
                plan, went_on = smaller, True
                break
            if tries <= 0:
                break
    return plan


def smaller_ones(plan: Plan) -> Iterator[Plan]:
    """Without half of its steps, a quarter, and so on to single ones; then with less of all else."""
    size = max(1, len(plan.steps) // 2)
    while plan.steps:
        for start in range(0, len(plan.steps), size):
            yield plan.only(steps=plan.kept[:start] + plan.kept[start + size :])
        if size == 1:
            break
        size //= 2
    if len(plan.tags) > 1:
        yield plan.only(tags=len(plan.tags) - 1)
    if plan.threads > 1:
        yield plan.only(threads=plan.threads - 1)
    if plan.processes > 1:
        yield plan.only(processes=plan.processes - 1)
