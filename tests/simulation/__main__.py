"""python -m simulation: one seed again, with or without some of its steps, or a hundred thousand."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from support.documents import reports
from tqdm import tqdm

from simulation import between, moves, run, workers, world
from simulation.faces import faces
from simulation.plan import Plan, draw
from simulation.violation import Violation

PODS = 1000


def numbers(words: str) -> tuple[int, ...]:
    return () if words == "none" else tuple(int(word) for word in words.split(","))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run the world of this seed alone")
    parser.add_argument("--steps", type=numbers, help="with these steps of its plan: 0,3,4 or none")
    parser.add_argument("--tags", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--seeds", type=int, default=100_000, help="so many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first of their seeds")
    parser.add_argument("--ends", type=int, help="only so many worlds of failovers and ends between two statements")
    parser.add_argument("--moves", type=int, help="only so many worlds of one row a database, and of slots")
    parser.add_argument("--pods", type=int, help="only so many worlds of a thousand pods that lease worker numbers")
    return parser.parse_args()


def again(plan: Plan) -> int:
    """Run one world, with the error as it comes."""
    print(plan.words)
    for step in plan.steps:
        print(f"    {step}")
    with faces():
        counts = world.run(plan).counts
    print(told(counts))
    return 0


def told(counts: Counter[str]) -> str:
    return "; ".join(f"{what} {times}" for what, times in sorted(counts.items()))


def many(name: str, what: str, worlds: Callable[[range], Counter[str]], seeds: range, at_once: int) -> int:
    """Up to the first world that breaks a promise. A process gets so many at once."""
    began, total = time.monotonic(), Counter[str]()
    parts = [seeds[start : start + at_once] for start in range(0, len(seeds), at_once)]
    with (
        ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool,
        tqdm(total=len(seeds), unit=f" {what}") as bar,
    ):
        try:
            for part, counts in zip(parts, pool.map(worlds, parts), strict=True):
                total.update(counts)
                bar.update(len(part))
        except Violation as error:
            bar.close()
            print(error)
            pool.shutdown(cancel_futures=True)
            return 1
    figures = f"in {time.monotonic() - began:.0f} s, nothing came twice: {told(total)}"
    reports.write(name, f"seeds {seeds.start} to {seeds.stop - 1}", figures)
    return 0


def plans(seeds: range) -> int:
    return many("simulate", "worlds", run.worlds, seeds, 25)


def ends(seeds: range) -> int:
    return many("simulate-ends", "worlds of ends", between.worlds, seeds, 25)


def of_moves(seeds: range) -> int:
    return many("simulate-moves", "worlds of moves", moves.worlds, seeds, 100)


def pods(seeds: range) -> int:
    return many("simulate-workers", f"worlds of {PODS} pods", partial(workers.worlds, pods=PODS), seeds, 5)


def main() -> int:
    words = asked()
    if words.ends is not None:
        return ends(range(words.first, words.first + words.ends))
    if words.moves is not None:
        return of_moves(range(words.first, words.first + words.moves))
    if words.pods is not None:
        return pods(range(words.first, words.first + words.pods))
    if words.seed is None:
        of_pods = range(words.first, words.first + words.seeds // 100)
        of_ends = range(words.first, words.first + words.seeds // 5)
        seeds = range(words.first, words.first + words.seeds)
        return plans(seeds) or of_moves(seeds) or ends(of_ends) or pods(of_pods)
    plan = draw(words.seed).only(words.steps, words.tags, words.threads, words.processes)
    return again(plan)


if __name__ == "__main__":
    raise SystemExit(main())
