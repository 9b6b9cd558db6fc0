"""One interleaved run: every round runs every candidate once, in rotated order.

So other load on the machine affects all candidates alike. Results are the median and spread of ratios within a round.
"""

from __future__ import annotations

import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Measure = Callable[[], float]
"""One measurement of a candidate, in the unit of its race."""


@dataclass
class Race:
    """Candidates measured in one unit. The first is the base of the ratios.

    loop: measured with them, and subtracted from each.
    """

    suite: str
    unit: str
    candidates: dict[str, Measure]
    loop: Measure | None = None
    judged: bool = True
    """Whether the goals promise figures of it."""
    controlled: bool = False
    """Whether each round measures the base twice: the difference is noise of the machine."""
    found: dict[str, list[float]] = field(default_factory=dict)
    again: list[float] = field(default_factory=list)

    def a_second(self, name: str) -> float | None:
        """The rate per second, for a race measured in time."""
        units = {"ns": 1e9, "us": 1e6, "ms": 1e3}.get(self.unit[:2])
        return units / spread(self.found[name]).median if units else None

    @property
    def base(self) -> str:
        return next(iter(self.candidates))

    def ratios(self, of: str, to: str) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.found[of], self.found[to], strict=True)]

    def spreads(self, of: str, to: str | None = None) -> Spread:
        return spread(self.found[of] if to is None else self.ratios(of, to))

    @property
    def control(self) -> Spread | None:
        """The base to itself, both measured in the same round."""
        pairs = zip(self.again, self.found.get(self.base, []), strict=False)  # a round may be under way
        ratios = [again / base for again, base in pairs if base]
        return spread(ratios) if ratios else None


@dataclass(frozen=True)
class Spread:
    """A median, the range of four fifths of the rounds (`low`, `high`), and the quartiles."""

    median: float
    low: float
    high: float
    lower_quartile: float
    upper_quartile: float


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    tenth, quarter = len(ordered) // 10, len(ordered) // 4
    return Spread(
        statistics.median(ordered), ordered[tenth], ordered[-1 - tenth], ordered[quarter], ordered[-1 - quarter]
    )


def rotated(names: Sequence[str], number: int) -> Sequence[str]:
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


def run(races: Sequence[Race], rounds: int, enough: Callable[[int], bool] = lambda _: False) -> Iterator[None]:
    """Measure all races together; yields after each measurement, for a progress bar.

    enough: called after each round with the number of rounds done; the run ends early where it is true.
    """
    todo = {f"{at} {name}": (race, name, False) for at, race in enumerate(races) for name in race.candidates}
    todo |= {f"{at} again": (race, race.base, True) for at, race in enumerate(races) if race.controlled}
    for number in range(rounds):
        loops = {id(race): race.loop() if race.loop else 0.0 for race in races}
        for key in rotated(list(todo), number):
            race, name, again = todo[key]
            noted = race.again if again else race.found.setdefault(name, [])
            noted.append(race.candidates[name]() - loops[id(race)])
            yield
        if enough(number + 1):
            return


class Stop:
    """Ends a run on SIGTERM, after the current measurement, which has open threads and transactions.

    A second SIGTERM ends it at once.
    """

    def __init__(self) -> None:
        self.wanted = False

    def __call__(self, *_: object) -> None:
        self.wanted = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def check(self) -> None:
        if self.wanted:
            sys.exit(128 + signal.SIGTERM)


def steps(races: Sequence[Race], rounds: int) -> int:
    return rounds * sum(len(race.candidates) + race.controlled for race in races)
