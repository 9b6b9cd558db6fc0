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

from simulation import between, moves, workers
from simulation.faces import faces
from simulation.plan import Plan, draw
from simulation.run import everywhere, lines
from simulation.violation import Violation
from simulation.world import run

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
        counts = run(plan).counts
    print(told(counts))
    return 0


def told(counts: Counter[str]) -> str:
    return "; ".join(f"{what} {times}" for what, times in sorted(counts.items()))


def many(seeds: range) -> int:
    began, total = time.monotonic(), Counter[str]()
    with tqdm(total=len(seeds), unit=" worlds") as bar:
        for counts, found in everywhere(seeds, os.cpu_count() or 1):
            if found is not None:
                bar.close()
                print(lines(found))
                return 1
            total.update(counts)
            bar.update(counts["worlds"])
    seconds = time.monotonic() - began
    figures = f"in {seconds:.0f} s, no failure: {told(total)}"
    reports.write("simulate", f"seeds {seeds.start} to {seeds.stop - 1}", figures)
    return 0


def of(name: str, what: str, one_world: Callable[[int], Counter[str] | Violation], seeds: range, at_once: int) -> int:
    """Worlds of ends, of moves or of pods: up to the first that breaks a promise. A process gets so many at once."""
    began, total = time.monotonic(), Counter[str]()
    with (
        ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool,
        tqdm(total=len(seeds), unit=f" {what}") as bar,
    ):
        for seed, counts in zip(seeds, pool.map(one_world, seeds, chunksize=at_once), strict=True):
            if isinstance(counts, Violation):
                bar.close()
                print(f"seed {seed}: {counts}")
                pool.shutdown(cancel_futures=True)
                return 1
            total.update(counts)
            bar.update()
    figures = f"in {time.monotonic() - began:.0f} s, nothing came twice: {told(total)}"
    reports.write(name, f"seeds {seeds.start} to {seeds.stop - 1}", figures)
    return 0


def ends(seeds: range) -> int:
    return of("simulate-ends", "worlds of ends", between.one_world, seeds, 25)


def of_moves(seeds: range) -> int:
    return of("simulate-moves", "worlds of moves", moves.one_world, seeds, 100)


def pods(seeds: range) -> int:
    return of("simulate-workers", f"worlds of {PODS} pods", partial(workers.one_world, PODS), seeds, 5)


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
        return many(seeds) or of_moves(seeds) or ends(of_ends) or pods(of_pods)
    plan = draw(words.seed).only(words.steps, words.tags, words.threads, words.processes)
    return again(plan)


if __name__ == "__main__":
    raise SystemExit(main())
