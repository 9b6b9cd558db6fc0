"""What the engines share: the worlds of many seeds, a world that fails, made smaller, and words that are left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from support.distinct import Duplicate

Part = TypeVar("Part")
OUT: AbstractSet[str] = frozenset()
"""The words of the rules that a control leaves out, to show what they are for."""


def is_out(word: str) -> bool:
    return word in OUT


def holds(*words: tuple[str, bool]) -> bool:
    """Whether each condition holds, but for those that are left out."""
    return all(found or word in OUT for word, found in words)


class Violation(Duplicate):
    """What the invariants raise; the code under test may catch it, as it catches whatever a claim raises."""

    raised: ClassVar[list[Violation]] = []
    """Since the world began: after each event the scheduler looks whether there is one."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.raised.append(self)


class Engine(NamedTuple):
    """A kind of worlds. play: that of a seed. trace: the smallest one that still fails, and how to run it."""

    name: str
    play: Callable[[int], Counter[str]]
    faces: Callable[[], AbstractContextManager[None]] = nullcontext
    trace: Callable[[int], str] | None = None

    def worlds(self, seeds: Iterable[int]) -> Counter[str]:
        """What the worlds of these seeds reached. Raises `Violation`, with the trace of the first that fails."""
        counts: Counter[str] = Counter()
        with self.faces():
            for seed in seeds:
                try:
                    counts.update(self.play(seed))
                except Exception as error:
                    again = f"again: PYTHONPATH=tests python -m simulation --{self.name} 1 --first {seed}"
                    trace = self.trace(seed) if self.trace else again
                    raise Violation(f"{self.name}, seed {seed}: {error!r}\n{trace}") from error
        return counts

    def failure(self, seeds: Iterable[int]) -> Exception | None:
        """What the first of these worlds that fails ends with."""
        with self.faces():
            for seed in seeds:
                try:
                    self.play(seed)
                except Exception as error:
                    return error
        return None


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


@dataclass
class Held:
    """From one millisecond to another, both included. is_over: it was given back, before the answer to a renewal."""

    whose: object
    since: int
    until: int
    is_over: bool = False


class Holders:
    """Who holds what under which name: no two at one time, but one lease after the other of the same process."""

    def __init__(self) -> None:
        self._of: dict[object, dict[str, Held]] = defaultdict(dict)

    def held(self, what: object, holder: str, whose: object, since: int, until: int) -> None:
        ours = self._of[what].setdefault(holder, Held(whose, since, until))
        if not ours.is_over:
            ours.until = max(ours.until, until)
        for other in self._of[what].values():
            if other.whose != whose and other.since <= ours.until and ours.since <= other.until:
                raise Violation(f"{what} is of {whose} and of {other.whose} at one time")

    def ends(self, what: object, holder: str, until: int) -> None:
        """Its holder gives it back."""
        if ours := self._of[what].get(holder):
            ours.until, ours.is_over = until, True

    def is_held(self, what: object, whose: object, at: int) -> bool:
        return any(held.whose == whose and held.since <= at <= held.until for held in self._of[what].values())
