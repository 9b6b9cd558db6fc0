"""Ten minutes of what is drawn, in bounded memory."""

from __future__ import annotations

from allocator.service.console.history import ALL, EVERY, MAX_TAGS, POINTS, History


def test_a_sample_is_the_rate_since_the_one_before():
    history = History(100.0)
    history.record(105.0, {ALL: 50, "order": 50}, {"order": 0.25})
    history.record(115.0, {ALL: 70, "order": 50, "line": 20}, {})

    assert list(history.times) == [105.0, 115.0]
    assert list(history.series["order"].rates) == [10.0, 0.0]
    assert list(history.series["order"].refills) == [0.25, 0.0]
    assert list(history.series["line"].rates) == [0.0, 2.0], "it had no ids before its first"
    assert list(history.series[ALL].rates) == [10.0, 2.0]
    assert history.rates == {ALL: 2.0, "order": 0.0, "line": 2.0}
    assert history.busiest == ["order", "line"]


def test_ten_minutes_are_kept_and_a_tag_that_was_idle_for_so_long_makes_room():
    history = History(0.0)
    for number in range(1, POINTS + 1):
        history.record(number * EVERY, {ALL: number, "order": number, "once": 7}, {})
    assert history.times[-1] - history.times[0] == 600.0
    assert set(history.series) == {ALL, "order", "once"}
    history.record(606.0, {ALL: 500, "order": 500, "once": 7}, {})
    assert set(history.series) == {ALL, "order"}
    history.record(611.0, {ALL: 505, "order": 500, "once": 12}, {})

    assert {len(series.rates) for series in history.series.values()} == {len(history.times)} == {POINTS}
    assert list(history.series["once"].rates)[-2:] == [0.0, 1.0]


def test_callers_who_make_up_tags_take_no_more_memory():
    history = History(0.0)
    history.record(5.0, {ALL: 1} | {f"tag-{number}": 5 for number in range(2 * MAX_TAGS)}, {})

    assert len(history.series) == MAX_TAGS + 1
    assert history.rates["tag-999"] == 1.0
