"""Metrics of the service, for Prometheus.

At most `MAX_TAGS` tags have series of their own, since callers can make up tags. All others share one. Ids left are
those of the `MAX_TAGS` tags that have the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

import allocator
from allocator.errors import AllocatorError, UnknownTag
from allocator.generators.backend_protocol import Backend

MAX_TAGS = 1000
"""Callers can make up tags, and each series takes memory and a line in every scrape."""
OTHERS = "(others)"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT"))
"""Callers can make up methods, too."""
OF_TAG = "tag "
"""Prefix of the label `what` in a series about a tag."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
"""Upper bounds of the histogram. The last is the default timeout: a longer claim is overdue."""

VERBS = {
    "open_segment": "tag",
    "claim_segment": "segment",
    "register_node": "node",
    "lease_number": "lease",
    "renew_number": "lease",
    "release_number": "lease",
    "ticket": "ticket",
}
"""The calls of a backend that are timed, by the kind that the histogram names."""


class TimedBackend:
    """Forwards all calls to `backend`, and reports the kind, outcome and seconds of its verbs, and the tag claimed."""

    def __init__(self, backend: Backend, report: Callable[[str, str, float, str | None], None]) -> None:
        self._backend, self._report = backend, report
        for verb, kind in VERBS.items():
            setattr(self, verb, partial(self._call, kind, getattr(backend, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def _call(self, kind: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        began, outcome = perf_counter(), "ok"
        try:
            return work(*args, **options)
        except AllocatorError as error:
            # That there is no such tag is an answer, as to a misspelt name.
            outcome = "ok" if kind == "tag" and isinstance(error, UnknownTag) else type(error).__name__
            raise
        finally:
            claimed = args[0] if kind == "segment" and outcome == "ok" else None
            self._report(kind, outcome, perf_counter() - began, claimed)


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._tags: set[str] = set()
        self._counted: dict[tuple[str, str], int] = {}
        self._refills: dict[str, float] = {}
        self.ids = Counter("allocator_ids", "Ids issued", ["scheme", "tag"], registry=registry)
        self.refusals = Counter("allocator_refusals", "Requests refused", ["status", "error"], registry=registry)
        self.requests = Histogram(
            "allocator_request_seconds",
            "Duration of a request, by route, method and class of status",
            ["route", "method", "status"],
            buckets=SECONDS,
            registry=registry,
        )
        Info("allocator_build", "The version that runs", registry=registry).info({"version": allocator.__version__})
        ProcessCollector(registry=registry)
        self.claims = Histogram(
            "allocator_claim_seconds",
            "Duration of a call to the database, by kind and outcome",
            ["what", "outcome"],
            buckets=SECONDS,
            registry=registry,
        )

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(name, about, labels, registry=registry)

        self.in_memory = gauge("allocator_ids_in_memory", "Ids of a tag in memory", "tag")
        self.lasting = gauge("allocator_seconds_in_memory", "Seconds until these run out, at the current rate", "tag")
        self.refill = gauge("allocator_refill_seconds", "Duration of the last claim of a tag", "tag")
        self.left = gauge("allocator_numbers_left", "Ids below the limit of a tag, or node numbers", "what")
        self.shards = gauge("allocator_shard_up", "1 if the database is in use", "slot")
        self.lease = gauge("allocator_lease_seconds", "Seconds until a lease ends that cannot be renewed", "worker")
        self.workers = gauge("allocator_worker_numbers", "Worker numbers of a space, held or free", "space", "state")
        self.ready = gauge("allocator_ready", "1 if the service can serve ids for the next seconds")

    def timed(self, backend: Backend) -> Backend:
        """The backend, with each call to the database in the metrics."""
        return cast("Backend", TimedBackend(backend, self.claimed))

    def claimed(self, what: str, outcome: str, seconds: float, tag: str | None) -> None:
        self.claims.labels(what, outcome).observe(seconds)
        if tag is not None:
            self.refill.labels(self.series(tag)).set(seconds)
            self._refills[self.series(tag)] = seconds

    def take_refills(self) -> dict[str, float]:
        """Seconds of the last claim of each tag that was claimed from since the last call."""
        found, self._refills = self._refills, {}
        return found

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else OTHERS
        self.requests.labels(route, known, f"{status // 100}xx").observe(seconds)

    def refused(self, status: int, error: str) -> None:
        self.refusals.labels(str(status), error).inc()

    def series(self, tag: str) -> str:
        """The label for a tag."""
        if tag in self._tags or len(self._tags) < MAX_TAGS:
            self._tags.add(tag)
            return tag
        return OTHERS

    def count(self, scheme: str, totals: Mapping[str, int]) -> None:
        """Set the numbers of ids issued since the start, by tag."""
        for tag, total in totals.items():
            if more := total - self._counted.get((scheme, tag), 0):
                self._counted[scheme, tag] = total
                self.ids.labels(scheme, self.series(tag)).inc(more)

    def text(self) -> bytes:
        """The metrics in Prometheus format."""
        return generate_latest(self._registry)
