"""Plots, and numbers as people read them."""

from __future__ import annotations

from math import inf

from allocator.service.console import figures


def test_numbers_as_people_read_them():
    for shown, words in [
        (figures.count(1234567), "1 234 567"),
        (figures.count(None), ""),
        (figures.rate(0.004), ""),
        (figures.rate(0.05), "0.05"),
        (figures.rate(3.14), "3.1"),
        (figures.rate(12345.6), "12 346"),
        (figures.duration(None), ""),
        (figures.duration(inf), ""),
        (figures.duration(0.0034), "3.4 ms"),
        (figures.duration(0.25), "250 ms"),
        (figures.duration(2.5), "2.5 s"),
        (figures.duration(59.6), "60 s"),
        (figures.duration(600), "10 min"),
        (figures.duration(7300), "2.0 h"),
        (figures.duration(864_000), "10 days"),
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
