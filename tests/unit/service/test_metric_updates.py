"""The loops that keep the metrics."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

from allocator.service import metric_updates
from allocator.service.metric_updates import DaysLeft, MetricsUpdater
from allocator.service.metrics import MAX_TAGS, Metrics


def updater(lead: Callable[[], Any]) -> MetricsUpdater:
    service: Any = SimpleNamespace(ids=SimpleNamespace(databases=SimpleNamespace(lead=lead)))
    token_cache: Any = None
    return MetricsUpdater(service, token_cache, Metrics())


def test_the_tags_that_end_first_have_days_left_and_the_others_are_counted(monkeypatch):
    """The busy ones come last by name, so that others had their place before."""
    names, metrics = [f"t{number:04}" for number in range(MAX_TAGS + 3)], Metrics()
    busy, tags = {names[-1]: 1, names[-2]: 2, names[-3]: 3}, DaysLeft("tag ", metrics.days)
    for hour in (0, 2, 4):
        monkeypatch.setattr(metric_updates, "monotonic", lambda now=3600.0 * hour: now)
        hidden = tags.update((name, busy.get(name, 0) * hour, 1000) for name in names)
        (shown,) = (metric.samples for metric in metrics.collect() if metric.name == "allocator_days_left")
        assert (hidden, len(shown)) == (3, MAX_TAGS)
    assert {f"tag {name}" for name in busy} <= {one.labels["what"] for one in shown}
    assert tags.update([(names[0], 0, 1000)]) == 0

    (shown,) = (metric.samples for metric in metrics.collect() if metric.name == "allocator_days_left")
    assert [(one.labels["what"], one.value) for one in shown] == [(f"tag {names[0]}", inf)]
    assert tags.days == {names[0]: inf}


def test_a_lease_ends_for_the_metrics_only_where_its_renewal_fails(monkeypatch):
    """Without draws no lease is renewed, and nobody must get up for that."""
    monkeypatch.setattr(metric_updates, "time", lambda: 1000.0)
    looked = updater(lambda: None)
    ids: Any = looked._ids
    ids.is_lease_in_danger, seen = False, []
    for number, danger in ((7, False), (7, True), (8, True), (8, False)):
        ids.lease, ids.is_lease_in_danger = SimpleNamespace(number=number, until=1_012_000), danger
        looked._update_lease()
        (metric,) = looked._metrics.lease.collect()
        seen += [(one.labels["worker"], one.value) for one in metric.samples]

    assert seen == [("7", inf), ("7", 12.0), ("8", 12.0), ("8", inf)]
