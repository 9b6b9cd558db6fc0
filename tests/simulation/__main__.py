"""python -m simulation: one seed again, with or without some of its steps, or a hundred thousand."""

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from support.documents import reports
from tqdm import tqdm

from simulation.between import ENDS
from simulation.faces import faces
from simulation.moves import MOVES
from simulation.plan import Plan, draw
from simulation.seeds import Engine, Violation
from simulation.workers import PODS
from simulation.world import PLANS, run

ENGINES = {
    PLANS: ("of faults", "simulate", 25, 1),
    MOVES: ("of one row a database, and of slots", "simulate-moves", 100, 1),
    ENDS: ("of failovers and ends between two statements", "simulate-ends", 25, 5),
    PODS: ("of a thousand pods that lease worker numbers", "simulate-workers", 5, 100),
}
"""What its worlds are of, its report, how many worlds a process gets at once, and for how many seeds there is one."""


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
    for engine, (what, *_) in ENGINES.items():
        parser.add_argument(f"--{engine.name}", type=int, help=f"only so many worlds {what}")
    return parser.parse_args()


def again(plan: Plan) -> int:
    """Run one world, with the error as it comes."""
    print(plan.words)
    for step in plan.steps:
        print(f"    {step}")
    with faces():
        print(told(run(plan).counts))
    return 0


def told(counts: Counter[str]) -> str:
    return "; ".join(f"{what} {times}" for what, times in sorted(counts.items()))


def many(engine: Engine, seeds: range) -> int:
    """Up to the first world that breaks a promise."""
    _, report, at_once, _ = ENGINES[engine]
    began, total = time.monotonic(), Counter[str]()
    parts = [seeds[start : start + at_once] for start in range(0, len(seeds), at_once)]
    with (
        ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool,
        tqdm(total=len(seeds), unit=f" worlds of {engine.name}") as bar,
    ):
        try:
            for part, counts in zip(parts, pool.map(engine.worlds, parts), strict=True):
                total.update(counts)
                bar.update(len(part))
        except Violation as error:
            bar.close()
            print(error)
            pool.shutdown(cancel_futures=True)
            return 1
    figures = f"in {time.monotonic() - began:.0f} s, nothing came twice: {told(total)}"
    reports.write(report, f"seeds {seeds.start} to {seeds.stop - 1}", figures)
    return 0


def main() -> int:
    words = asked()
    if words.seed is not None:
        fewer = {"threads": words.threads, "processes": words.processes}
        return again(draw(words.seed).only(words.steps, words.tags, **fewer))
    some = {engine: n for engine in ENGINES if (n := getattr(words, engine.name)) is not None}
    worlds = some or {engine: words.seeds // each for engine, (*_, each) in ENGINES.items()}
    return max(many(engine, range(words.first, words.first + n)) for engine, n in worlds.items())


if __name__ == "__main__":
    raise SystemExit(main())
