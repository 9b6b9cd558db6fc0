"""The rates and refills of the last ten minutes, in memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

EVERY = 5.0
"""Seconds between two samples."""
POINTS = 121
"""Samples that are kept: from the first to the last are ten minutes."""
MAX_TAGS = 500
"""Tags with a history of their own, of 8 KB each at most."""
ALL = ""
"""The name of the series of all ids; no tag has it."""


class Series:
    """Ids per second, and the seconds of the last claim or 0, for each sample."""

    def __init__(self, empty: int) -> None:
        self.rates = deque([0.0] * empty, POINTS)
        self.refills = deque([0.0] * empty, POINTS)


class History:
    """The series of the tags that are drawn from, up to `MAX_TAGS`.

    times: of the samples, in seconds of any clock that is never set back.
    rates: ids per second in the last sample, of every tag.
    busiest: the tags with a series, by the ids of the last ten minutes, most first.
    """

    def __init__(self, now: float) -> None:
        self.times: deque[float] = deque(maxlen=POINTS)
        self.series = {ALL: Series(0)}
        self.rates: Mapping[str, float] = {}
        self.busiest: list[str] = []
        self._totals: Mapping[str, int] = {}
        self._sampled_at = now

    def record(self, now: float, totals: Mapping[str, int], refills: Mapping[str, float]) -> None:
        """Take a sample: ids so far by tag, and the seconds of the claims since the last sample by tag."""
        passed = now - self._sampled_at
        self.rates = rates = {name: (ids - self._totals.get(name, 0)) / passed for name, ids in totals.items()}
        for name, rate in rates.items():
            if (rate > 0 or name in refills) and name not in self.series and len(self.series) <= MAX_TAGS:
                self.series[name] = Series(len(self.times))
        for name, series in self.series.items():
            series.rates.append(rates.get(name, 0.0))
            series.refills.append(refills.get(name, 0.0))
        self.times.append(now)
        self._totals, self._sampled_at = totals, now
        self._end_idle()

    def mean(self, name: str) -> float:
        """Ids per second of a tag, in the last ten minutes."""
        rates = self.series[name].rates if name in self.series else ()
        return sum(rates) / len(rates) if rates else 0.0

    def _end_idle(self) -> None:
        """Make room: a tag without ids and claims for ten minutes needs no series."""
        kept = {name for name, one in self.series.items() if any(one.rates) or any(one.refills)}
        self.series = {name: self.series[name] for name in {ALL} | kept}
        ids = {name: sum(one.rates) for name, one in self.series.items() if name != ALL}
        self.busiest = sorted(ids, key=lambda name: (-ids[name], name))
