"""Many worlds, one after the other or on several processes."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from simulation.faces import faces
from simulation.plan import Plan, draw
from simulation.shrink import failure, shrunk
from simulation.variant import Variant
from simulation.world import run

EACH = 25
"""So many seeds are handed to a process at once."""
COLLECT = 20
"""Worlds after which what they left is collected: they are full of circles."""


class Found(NamedTuple):
    """A world that failed, as small as it could be made, and what was reached in all that did not."""

    plan: Plan
    error: str


def lines(found: Found) -> str:
    """How to run it again, in one line each: the seed, and the smallest plan that fails like it."""
    steps = "\n".join(f"    {step}" for step in found.plan.steps)
    return (
        f"seed {found.plan.seed}: {found.error}\n"
        f"again: PYTHONPATH=tests python -m simulation --seed {found.plan.seed}\n"
        f"small: PYTHONPATH=tests python -m simulation {found.plan.words}\n{steps}"
    )


def simulate(seeds: Iterable[int], variant: Variant | None = None) -> tuple[Counter[str], Found | None]:
    """Run the worlds of these seeds up to the first that fails: what was reached, and that one."""
    counts: Counter[str] = Counter()
    with faces():
        gc.disable()
        try:
            for number, seed in enumerate(seeds):
                try:
                    counts.update(run(draw(seed), variant).counts)
                except Exception as error:
                    return counts, smallest(draw(seed), error, variant)
                counts["worlds"] += 1
                if number % COLLECT == 0:
                    gc.collect()
        finally:
            gc.enable()
    return counts, None


def smallest(plan: Plan, first: Exception, variant: Variant | None = None) -> Found:
    """One that does not fail again is told with what it failed of, which is a fault of the simulator."""
    plan = shrunk(plan, variant)
    error = failure(plan, variant) or first
    return Found(plan, f"{type(error).__name__}: {error}")


def everywhere(seeds: range, processes: int) -> Iterator[tuple[Counter[str], Found | None]]:
    """The same on several processes of the machine, a part at a time."""
    parts = [range(start, min(start + EACH, seeds.stop)) for start in range(seeds.start, seeds.stop, EACH)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(simulate, parts)
