"""Totals from the metrics, and rates between two readings of them."""

from __future__ import annotations

from math import inf

from allocator.service.console.rows import TagMetrics
from allocator.service.console.tag_metrics import ALL, MAX_PAUSE, NOTHING, Totals, totals_of
from allocator.service.metrics import OTHERS, Metrics


def totals(**ids: int) -> Totals:
    return Totals({ALL: sum(ids.values()), **ids}, dict.fromkeys(ids, 50), dict.fromkeys(ids, 9.0), {"order": 0.25})


def test_the_rate_is_that_between_two_readings():
    reading = NOTHING.following(totals(order=100, line=0), 500.0).following(totals(order=130, line=8), 502.0)

    assert reading.rates == {ALL: 19.0, "order": 15.0, "line": 4.0}
    assert reading.of_tags()["order"] == TagMetrics(15.0, 50, 9.0, 0.25)
    assert reading.of_tags()["line"] == TagMetrics(4.0, 50, 9.0, 0.0)


def test_after_a_pause_and_a_clock_that_was_set_back_no_rate_is_known():
    first = NOTHING.following(totals(order=1), 100.0)
    assert first.rates == {}
    for at in (100.0, 99.0, 101.0 + MAX_PAUSE):
        later = first.following(totals(order=9), at)
        assert (later.rate("order"), later.rate()) == (0.0, 0.0), at
        assert later.following(totals(order=11), at + 1).rate("order") == 2.0, at


def test_totals_are_of_tags_and_of_every_kind():
    metrics = Metrics()
    metrics.count("segment", "order", 5)
    metrics.count("block", "order", 10)
    metrics.count("ticket", "order", 100)
    metrics.count("meteor", "", 1000)
    metrics.ids.labels("segment", OTHERS).inc(10_000)
    metrics.in_memory.labels("order").set(7)
    metrics.in_memory.labels(OTHERS).set(8)
    metrics.lasting.labels("order").set(inf)
    metrics.claimed("segment", "ok", 0.5, ["order"])

    assert totals_of(metrics.collect()) == ({ALL: 11115, "order": 15}, {"order": 7}, {"order": inf}, {"order": 0.5})
