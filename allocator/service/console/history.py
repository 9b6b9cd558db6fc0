"""The last minutes of two figures, second by second, in a ring that never grows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """refill: the slowest claim of that second, in seconds; 0 where there was none."""

    second: int
    rate: float
    refill: float


class Ring:
    """`size` seconds. The clock is the caller's, in whole seconds since 1970."""

    __slots__ = ("_first", "_last", "_rates", "_refills")

    def __init__(self, size: int) -> None:
        self._rates = array("f", bytes(4 * size))
        self._refills = array("f", bytes(4 * size))
        self._first = self._last = -1

    def put(self, second: int, rate: float, refill: float = 0.0) -> None:
        """The rate since the last `put`, which is that of the seconds between too."""
        size = len(self._rates)
        if self._last < 0 or not 0 <= second - self._last < size:  # the clock was set, or nobody looked for long
            self._first, self._last = second, second - 1
        for one in range(self._last + 1, second + 1):
            self._rates[one % size], self._refills[one % size] = rate, 0.0
        self._refills[second % size] = max(refill, self._refills[second % size])
        self._last = second

    def samples(self) -> list[Sample]:
        """Oldest first."""
        size = len(self._rates)
        since = max(self._first, self._last - size + 1)
        seconds = range(since, self._last + 1) if self._last >= 0 else ()
        return [Sample(one, self._rates[one % size], self._refills[one % size]) for one in seconds]

    def mean(self, seconds: int) -> float:
        """Of the rates of the last so many seconds."""
        size = len(self._rates)
        since = max(self._first, self._last - min(seconds, size) + 1)
        known = [self._rates[one % size] for one in range(since, self._last + 1)] if self._last >= 0 else []
        return sum(known) / len(known) if known else 0.0

    @property
    def is_idle(self) -> bool:
        return not any(self._rates) and not any(self._refills)


def together(parts: Iterable[Sequence[Sequence[float]]]) -> list[Sample]:
    """The samples of several workers as those of one service: rates add up, and the slowest refill counts.

    A second that not all of them have told yet, the newest one, is left out.
    """
    known = [part for part in parts if part]
    found: dict[int, Sample] = {}
    for part in known:
        for second, rate, refill in part:
            before = found.get(int(second), Sample(int(second), 0.0, 0.0))
            found[int(second)] = Sample(int(second), before.rate + rate, max(before.refill, refill))
    newest = min((int(part[-1][0]) for part in known), default=0)
    return [found[second] for second in sorted(found) if second <= newest]
