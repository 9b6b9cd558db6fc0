"""Rates and refills of the last minutes, from the metrics that all workers of the service write.

A worker reads their totals once a second: always if it is the only one, else while somebody looks at its pages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Iterable
from math import inf
from threading import Lock
from time import monotonic, time
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from allocator.service.console.tag_table import Figure
from allocator.service.metrics import OTHERS, Figures

log = logging.getLogger("allocator.service")

ALL = ""
"""The name of all ids together, which is no tag."""

ALL_SECONDS, TAG_SECONDS = 900, 180
MEAN_SECONDS = 5
"""Over which the current rate is taken."""
LONGEST = 10
"""Seconds between two readings; after a longer pause the history starts again."""
WATCHED_SECONDS = 180.0
"""How long after the last look at a page a worker goes on reading."""
QUIET = (0.0, 0.0)


class Sample(NamedTuple):
    """refill: how long the last claim of that second took; 0 if there was none."""

    second: int
    rate: float
    refill: float


class Totals(NamedTuple):
    """By tag: ids since the service started (of every kind under `ALL`), ids in memory and how many seconds they last,
    seconds of the last claim."""

    ids: dict[str, float]
    held: dict[str, float]
    lasting: dict[str, float]
    refill: dict[str, float]


def totals_of(metrics: Iterable[Metric]) -> Totals:
    totals = Totals(defaultdict(float), {}, {}, {})
    gauges = {
        "allocator_ids_in_memory": totals.held,
        "allocator_seconds_in_memory": totals.lasting,
        "allocator_refill_seconds": totals.refill,
    }
    for sample in (one for metric in metrics for one in metric.samples):
        tag = sample.labels.get("tag", "")
        if sample.name == "allocator_ids_total":
            totals.ids[ALL] += sample.value
            if sample.labels["scheme"] in {"segment", "block"} and tag != OTHERS:  # tickets have types, not tags
                totals.ids[tag] += sample.value
        elif tag != OTHERS and sample.name in gauges:
            gauges[sample.name][tag] = sample.value
    return totals


class History:
    """Rates and refills between successive readings. A tag without any in its window takes no memory."""

    def __init__(self) -> None:
        self._totals = Totals({}, {}, {}, {})
        self._second = 0
        self._seconds: deque[int] = deque(maxlen=ALL_SECONDS)
        self._series: dict[str, deque[tuple[float, float]]] = {}

    def add(self, totals: Totals, second: int) -> None:
        """Totals of a full second, counted from 1970."""
        before, passed = self._totals, second - self._second
        if passed == 0:
            return
        self._totals, self._second = totals, second
        if not 0 < passed <= LONGEST:  # nobody looked, or the clock was set
            self._seconds.clear()
            self._series.clear()
            return
        self._seconds.append(second)
        refills = {tag: seconds for tag, seconds in totals.refill.items() if before.refill.get(tag) != seconds}
        refills[ALL] = max(refills.values(), default=0.0)
        for name in self._series.keys() | totals.ids.keys() | refills.keys():
            rate = (totals.ids.get(name, 0.0) - before.ids.get(name, 0.0)) / passed
            self._append(name, (rate, refills.get(name, 0.0)))

    def _append(self, name: str, values: tuple[float, float]) -> None:
        if values == QUIET and name not in self._series:
            return
        size = ALL_SECONDS if name == ALL else TAG_SECONDS
        series = self._series.setdefault(name, deque([QUIET] * size, size))
        series.append(values)
        if values == QUIET and all(one == QUIET for one in series):
            del self._series[name]

    def samples(self, name: str) -> list[Sample]:
        """Oldest first."""
        series = self._series.get(name, [QUIET] * TAG_SECONDS)
        newest = zip(reversed(self._seconds), reversed(series), strict=False)
        return [Sample(second, *values) for second, values in newest][::-1]

    def rate(self, name: str = ALL) -> float:
        known = min(MEAN_SECONDS, len(self._seconds))
        series = self._series.get(name)
        return sum(series[-at][0] for at in range(1, known + 1)) / known if series and known else 0.0

    def figures(self) -> dict[str, Figure]:
        """Of every tag in memory somewhere."""
        _, held, lasting, refill = self._totals
        return {
            tag: Figure(self.rate(tag), int(held[tag]), lasting.get(tag, inf), refill.get(tag, 0.0)) for tag in held
        }


class LiveRates:
    """The history of the service, kept by one worker."""

    def __init__(self, metrics: Figures, is_alone: bool) -> None:
        self._metrics = metrics
        self._is_alone = is_alone
        self._watched_until = -inf
        self._lock = Lock()
        self._history = History()

    async def run(self) -> None:
        """Until it is cancelled. The workers write their totals at full seconds; read them half a second later."""
        while True:
            await asyncio.sleep(1.0 - (time() + 0.5) % 1.0)
            if self._is_wanted():
                await self._try_to_read()

    def _is_wanted(self) -> bool:
        return self._is_alone or monotonic() < self._watched_until

    async def _try_to_read(self) -> None:
        """Nothing that fails here, as a thread that the system refuses, may stop the readings that follow."""
        try:
            await asyncio.to_thread(self._read)
        except Exception:
            log.exception("the console could not read the metrics")

    def _read(self) -> None:
        second = int(time())
        totals = totals_of(self._metrics.collect())
        with self._lock:
            self._history.add(totals, second)

    async def watch(self) -> None:
        """Somebody looks: go on reading, and read at once if that was not done lately."""
        was_wanted, self._watched_until = self._is_wanted(), monotonic() + WATCHED_SECONDS
        if not was_wanted:
            await self._try_to_read()

    def samples(self, name: str) -> list[Sample]:
        with self._lock:
            return self._history.samples(name)

    def figures(self) -> tuple[float, dict[str, Figure]]:
        """The rate of all ids, and the figures of each tag."""
        with self._lock:
            return self._history.rate(), self._history.figures()
