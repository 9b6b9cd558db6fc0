"""One call of each scheme, as ratios to `next(range_iterator)`: python benchmarks/calls.py

Every round runs every candidate once, in rotated order; the cost of the loop is subtracted; CPU time, since a
snowflake waits. The median of the rounds is given, and between which values nine tenths of them lay.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import repeat

from allocator import Allocator, Meteor, ObjectId, Snowflake

CALLS, ROUNDS = 200_000, 21


def cpu(call: Callable[[], object]) -> float:
    """Nanoseconds of CPU a call, with the loop."""
    began = time.process_time()
    for _ in repeat(None, CALLS):
        call()
    return (time.process_time() - began) / CALLS * 1e9


def empty_loop() -> float:
    began = time.process_time()
    for _ in repeat(None, CALLS):
        pass
    return (time.process_time() - began) / CALLS * 1e9


def base() -> float:
    """`next(range_iterator)`, with the loop."""
    numbers = iter(range(CALLS))
    began = time.process_time()
    for _ in repeat(None, CALLS):
        next(numbers)
    return (time.process_time() - began) / CALLS * 1e9


def main() -> None:
    with Allocator("sqlite://") as ids:
        ids.next_ids("order", 10_000)
        candidates: dict[str, Callable[[], object]] = {
            "sequence.next_id()": ids.sequence("order").next_id,
            "ids.next_id(tag)": lambda: ids.next_id("order"),
            "Meteor.next_id()": Meteor(node=1).next_id,
            "ids.meteor()": ids.meteor,
            "Snowflake.next_id()": Snowflake(1, 1).next_id,
            "ids.snowflake()": ids.snowflake,
            "ObjectId()": ObjectId,
        }
        try:
            from bson import ObjectId as TheirObjectId
        except ImportError:
            pass
        else:
            candidates["bson.ObjectId()"] = TheirObjectId
        names = list(candidates)
        ratios: dict[str, list[float]] = {name: [] for name in names}
        for number in range(ROUNDS):
            loop = empty_loop()
            unit = base() - loop
            for name in names[number % len(names) :] + names[: number % len(names)]:
                ratios[name].append((cpu(candidates[name]) - loop) / unit)
    for name in names:
        found = sorted(ratios[name])
        low, high = found[len(found) // 20], found[-1 - len(found) // 20]
        print(f"{name:<22} {statistics.median(found):6.2f}   ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
