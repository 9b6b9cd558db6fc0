"""What the console keeps and shows."""

from math import inf

from allocator.service.console import figures
from allocator.service.console.history import ALL, EVERY, MAX_TAGS, POINTS, History

# -- plots, and numbers as people read them


def test_numbers_as_people_read_them():
    for shown, words in [
        (figures.count(1234567), "1 234 567"),
        (figures.count(None), ""),
        (figures.rate(0.004), ""),
        (figures.rate(3.14), "3.1"),
        (figures.duration(inf), ""),
        (figures.duration(0.0034), "3.4 ms"),
        (figures.duration(59.6), "60 s"),
        (figures.duration(7300), "2.0 h"),
        (figures.duration(10 * figures.YEAR), "10 years"),
        (figures.duration(1e15), "> 100 years"),
    ]:
        assert shown.replace(figures.THIN, " ") == words


def test_a_plot_ends_at_its_right_edge_and_fits_in():
    times, values = [100.0, 400.0, 700.0], [0.0, 40.0, 10.0]

    assert [figures.top_of([value]) for value in (0, 0.3, 1, 7, 1001)] == [1.0, 0.5, 1.0, 10.0, 2000.0]
    assert figures.curve(times, values) == "M0,100.0L300,20.0L600,80.0"
    assert figures.area(times, values) == "M0,100.0L300,20.0L600,80.0V100H0Z"
    assert figures.bars(times, values) == "M300,100V20.0M600,100V80.0"
    assert figures.coarse([9, 1, 2, 3, 4, 5, 6]) == [2.0, 5.0]


# -- ten minutes of what is drawn, in bounded memory


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
    history.record(616.0, {ALL: 506} | {f"tag-{number}": 5 for number in range(2 * MAX_TAGS)}, {})
    assert len(history.series) == MAX_TAGS + 1, "callers who make up tags take no more memory"
