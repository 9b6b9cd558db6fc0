"""Metrics of the service, for Prometheus. Workers write theirs to files, so that any worker can report for all.

At most `MAX_TAGS` tags have series of their own, since callers can make up tags. All others share one. Days left are
those of the `MAX_TAGS` tags that have the fewest.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from heapq import nsmallest
from math import inf
from pathlib import Path
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from allocator.service.settings import METRICS_FOLDER

MAX_TAGS = 1000
"""Callers can make up tags, and each series takes memory in every worker and a line in every scrape."""
OTHERS = "(others)"
OF_TAG, OF_KEY = "tag ", "key "
"""Prefixes of the label `what` in a series about a tag, or about an integer key of another table."""
DAYS_LEFT = "allocator_days_left"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
"""Upper bounds of the histogram. The last is the default timeout: a longer claim is overdue."""


class Metrics(Collector):
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._tags: set[str] = set()
        self._counted: dict[tuple[str, str], int] = {}
        self.claimed_at = -inf
        """Monotonic seconds of the last call that a database answered."""
        self.ids = Counter("allocator_ids", "Ids issued", ["scheme", "tag"], registry=registry)
        self.refusals = Counter("allocator_refusals", "Requests refused", ["status", "error"], registry=registry)
        self.claims = Histogram(
            "allocator_claim_seconds",
            "Duration of a call to the database, by kind and outcome",
            ["what", "outcome"],
            buckets=SECONDS,
            registry=registry,
        )
        gauge = self._gauge
        self.in_memory = gauge("allocator_ids_in_memory", "Ids of a tag in memory", "livesum", "tag")
        self.lasting = gauge(
            "allocator_seconds_in_memory", "Seconds until these run out, at the current rate", "livemin", "tag"
        )
        self.refill = gauge("allocator_refill_seconds", "Duration of the last claim of a tag", "livemostrecent", "tag")
        self.days = gauge(DAYS_LEFT, "Days until a tag, key or field runs out, at the current rate", "livemin", "what")
        self.hidden = gauge(
            "allocator_days_left_hidden", "Tags without a series of days left: the others have fewer", "livemax"
        )
        self.shards = gauge("allocator_shard_up", "1 if the shard is in use", "livemin", "shard")
        self.lease = gauge(
            "allocator_lease_seconds", "Seconds until a lease ends that cannot be renewed", "livemin", "worker"
        )
        self.workers = gauge(
            "allocator_worker_numbers", "Worker numbers of a space, held or free", "livemostrecent", "space", "state"
        )
        self.ready = gauge("allocator_ready", "1 if the worker can serve ids for the next seconds", "livemin")

    def _gauge(self, name: str, about: str, mode: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def claimed(self, what: str, outcome: str, seconds: float, tags: Collection[str] = ()) -> None:
        self.claims.labels(what, outcome).observe(seconds)
        if outcome == "ok":
            self.claimed_at = monotonic()
        for tag in tags:
            self.refill.labels(self.series(tag)).set(seconds)

    def refused(self, status: int, error: str) -> None:
        self.refusals.labels(str(status), error).inc()

    def series(self, tag: str) -> str:
        """The label for a tag."""
        if tag in self._tags or len(self._tags) < MAX_TAGS:
            self._tags.add(tag)
            return tag
        return OTHERS

    def count(self, scheme: str, tag: str, total: int) -> None:
        """Set the number of ids issued since the start."""
        more = total - self._counted.get((scheme, tag), 0)
        if more:
            self._counted[scheme, tag] = total
            self.ids.labels(scheme, self.series(tag)).inc(more)

    def count_all(self, scheme: str, totals: Mapping[str, int]) -> None:
        for tag, total in list(totals.items()):
            self.count(scheme, tag, total)

    def collect(self) -> Iterable[Metric]:
        """The metrics of all workers."""
        folder = os.environ.get(METRICS_FOLDER)
        if folder is None:
            return with_fewest_days(self._registry.collect())
        forget_the_dead(Path(folder))
        files = list(written_files(Path(folder)))
        return with_fewest_days(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]

    def text(self) -> bytes:
        """The metrics of all workers in Prometheus format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def written_files(folder: Path) -> Iterator[str]:
    """The files of all workers. A file that a worker creates at this moment is empty, and `merge` raises for it."""
    for path in folder.glob("*.db"):
        with suppress(FileNotFoundError):  # Another worker may forget the dead meanwhile.
            if path.stat().st_size:
                yield str(path)


def with_fewest_days(metrics: Iterable[Metric]) -> Iterator[Metric]:
    """Limit the days left to `MAX_TAGS` tags: workers may report different ones, and a series cannot be removed."""
    for metric in metrics:
        if metric.name == DAYS_LEFT:
            tags = [sample for sample in metric.samples if sample.labels["what"].startswith(OF_TAG)]
            shown = nsmallest(MAX_TAGS, tags, key=lambda sample: sample.value)
            others = [sample for sample in metric.samples if not sample.labels["what"].startswith(OF_TAG)]
            metric.samples = others + shown
        yield metric


def begin_worker() -> None:
    """Forget the dead workers at the start of one, which may have the process id of one of them."""
    end_worker()
    if folder := os.environ.get(METRICS_FOLDER):
        forget_the_dead(Path(folder))


def end_worker() -> None:
    """Remove the gauges of this process id."""
    if folder := os.environ.get(METRICS_FOLDER):
        forget(os.getpid(), folder)


def forget_the_dead(folder: Path) -> None:
    """Remove the gauges of workers that were killed. Their counters stay."""
    found = {path.stem.rpartition("_")[2] for path in folder.glob("gauge_live*.db")}
    for process in found:
        if process.isdecimal() and not is_alive(int(process)):
            forget(int(process), str(folder))


def forget(process: int, folder: str) -> None:
    with suppress(FileNotFoundError):  # Another worker forgets it too.
        mark_process_dead(process, folder)  # type: ignore[no-untyped-call]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
