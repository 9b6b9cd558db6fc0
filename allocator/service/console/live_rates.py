"""Rates and refills of the last minutes, from the metrics of all workers.

A worker reads the totals once a second: always if it is the only one, else while somebody views its pages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Iterable
from math import inf
from threading import Lock
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple

from allocator.service.console.rows import Figure
from allocator.service.metrics import OTHERS, Figures

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger("allocator.service")

ALL = ""
"""The name of the series of all ids; no tag has it."""

ALL_SECONDS, TAG_SECONDS = 900, 180
MEAN_SECONDS = 5
"""The current rate is the mean of this many seconds."""
MAX_PAUSE = 10
"""Seconds between two reads; a longer pause clears the history."""
QUIET = (0.0, 0.0)
WATCHED_SECONDS = 180.0
"""Seconds that a worker continues to read after the last view of a page."""


class Sample(NamedTuple):
    """refill: seconds of the last claim in that second; 0 for none."""

    second: int
    rate: float
    refill: float


class Totals(NamedTuple):
    """Totals by tag: ids since the start, ids in memory, seconds that these last, seconds of the last claim.

    `ids[ALL]` counts ids of every scheme.
    """

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
    """Rates and refills between reads. An idle tag takes no memory."""

    def __init__(self) -> None:
        self._totals = Totals({}, {}, {}, {})
        self._second = 0
        self._seconds: deque[int] = deque(maxlen=ALL_SECONDS)
        self._series: dict[str, deque[tuple[float, float]]] = {}

    def add(self, totals: Totals, second: int) -> None:
        """Add the totals at a full second since 1970."""
        before, passed = self._totals, second - self._second
        if passed == 0:
            return
        self._totals, self._second = totals, second
        if not 0 < passed <= MAX_PAUSE:  # nobody viewed a page, or the clock was set
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
        """The figures of every tag in the memory of a worker."""
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
        """Read until cancelled, half a second after the workers write their totals at full seconds."""
        while True:
            await asyncio.sleep(1.0 - (time() + 0.5) % 1.0)
            if self._is_wanted():
                await self._try_to_read()

    def _is_wanted(self) -> bool:
        return self._is_alone or monotonic() < self._watched_until

    async def _try_to_read(self) -> None:
        """Read, and log any error, such as no free thread, so that later reads still happen."""
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
        """Note a view of a page; read at once if the worker was not reading."""
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
