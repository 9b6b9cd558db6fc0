"""What the engines share: the worlds of many seeds, and a world that fails, made smaller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from simulation.violation import Violation

Part = TypeVar("Part")


def reached(one_world: Callable[[int], Counter[str]], seeds: Iterable[int]) -> Counter[str]:
    """What the worlds of these seeds reached. Raises `Violation`, with the seed of the first that breaks a promise."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts.update(one_world(seed))
        except Violation as error:
            raise Violation(f"seed {seed}: {error}") from error
    return counts


def fewest(parts: Sequence[Part], fails: Callable[[Sequence[Part]], bool]) -> Sequence[Part]:
    """Without whatever may be left out, half of them or less at a time, while it still fails."""
    size = max(1, len(parts) // 2)
    while size:
        start = 0
        while start < len(parts):
            fewer = [*parts[:start], *parts[start + size :]]
            if fails(fewer):
                parts = fewer
            else:
                start += size
        size //= 2
    return parts
