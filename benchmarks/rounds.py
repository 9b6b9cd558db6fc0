"""One interleaved run: every round runs every candidate once, in rotated order.

So other load on the machine affects all candidates alike. Results are medians and spreads of ratios within a round.
A tool that measures one candidate after another, each in processes of its own, compares different minutes of a machine.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Measure = Callable[[], float]
"""One measurement of a candidate, in the unit of its race."""

LEAST = 3
"""Rounds of a race that takes longer than its time."""


class Figure(NamedTuple):
    """A row of the published table: the ratio of two candidates, and the bound that we hold it to."""

    what: str
    of: str
    to: str
    bound: str


class Spread(NamedTuple):
    """A median, and the range of four fifths of the rounds."""

    median: float
    low: float
    high: float


@dataclass
class Race:
    """Candidates measured in one unit. The first is the base of the ratios.

    place: the database. loop: measured with the candidates, and subtracted from each. taken: each single call, for
    percentiles, in seconds.
    """

    name: str
    unit: str
    candidates: dict[str, Measure]
    figures: Sequence[Figure] = ()
    place: str = ""
    loop: Measure | None = None
    taken: Mapping[str, array[float]] = field(default_factory=dict)
    found: dict[str, list[float]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}, {self.place}" if self.place else self.name

    @property
    def base(self) -> str:
        return next(iter(self.candidates))

    def spread(self, name: str) -> Spread:
        return spread(self.found[name])

    def ratio(self, of: str, to: str) -> Spread:
        return spread(ours / theirs for ours, theirs in zip(self.found[of], self.found[to], strict=True))

    @property
    def told(self) -> dict[Figure, Spread]:
        """The figures whose candidates were measured."""
        return {one: self.ratio(one.of, one.to) for one in self.figures if {one.of, one.to} <= self.found.keys()}


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return Spread(statistics.median(ordered), ordered[tenth], ordered[-1 - tenth])


def run(races: Sequence[Race], rounds: int, seconds: float) -> None:
    """Measure all races together, for `rounds`, or fewer where these take longer than `seconds`."""
    todo = [(race, name) for race in races for name in race.candidates]
    end = time.monotonic() + seconds
    for number in range(rounds):
        if number >= LEAST and time.monotonic() > end:
            return
        loops = {race.title: race.loop() if race.loop else 0.0 for race in races}
        turn = number % max(1, len(todo))
        for race, name in [*todo[turn:], *todo[:turn]]:
            race.found.setdefault(name, []).append(race.candidates[name]() - loops[race.title])
