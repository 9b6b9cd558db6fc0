"""Totals from the metrics, and the rates between two readings. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from allocator.service.console.rows import TagMetrics
from allocator.service.metrics import OTHERS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

ALL = ""
"""The name of the series of all ids; no tag has it."""
MAX_PAUSE = 30.0
"""Seconds between two readings. After a longer pause, in which nobody viewed a page, no rate is known."""


class Totals(NamedTuple):
    """Totals by tag: ids since the start, ids in memory, seconds that these last, seconds of the last claim.

    `ids[ALL]` counts ids of every scheme.
    """

    ids: dict[str, float]
    held: dict[str, float]
    lasting: dict[str, float]
    refill: dict[str, float]


class Reading(NamedTuple):
    """The totals at a time in seconds since 1970, and ids per second since the reading before, by tag."""

    at: float
    totals: Totals
    rates: dict[str, float]

    def rate(self, name: str = ALL) -> float:
        return self.rates.get(name, 0.0)

    def of_tags(self) -> dict[str, TagMetrics]:
        """The figures of every tag in memory."""
        _, held, lasting, refill = self.totals
        return {
            tag: TagMetrics(self.rate(tag), int(held[tag]), lasting.get(tag, inf), refill.get(tag, 0.0)) for tag in held
        }

    def following(self, totals: Totals, at: float) -> Reading:
        """The next reading."""
        passed, before = at - self.at, self.totals.ids
        if not 0 < passed <= MAX_PAUSE:
            return Reading(at, totals, {})
        return Reading(at, totals, {name: (ids - before.get(name, 0.0)) / passed for name, ids in totals.ids.items()})


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


NOTHING = Reading(0.0, Totals({}, {}, {}, {}), {})
