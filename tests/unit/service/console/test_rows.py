"""Rows, search, order and pages of the tags."""

from __future__ import annotations

from math import inf

from allocator.schemes.tag import Tag
from allocator.service.console.rows import PAGE, Query, TagMetrics, page_of, row_of, sort_key


def test_pages_of_names():
    names = [f"tag-{number:03}" for number in range(120)]
    pages = [page_of(names, Query(page=number), None) for number in (1, 3, 99, 0)]

    assert [(page.number, page.first, page.last, len(page.names)) for page in pages] == [
        (1, 1, PAGE, PAGE),
        (3, 101, 120, 20),
        (3, 101, 120, 20),
        (1, 1, PAGE, PAGE),
    ]
    empty = page_of([], Query(), None)
    assert (empty.pages, empty.first, empty.last, empty.found) == (1, 0, 0, 0)


def test_what_is_found():
    expected = {
        "ord": ["Order", "my-order"],
        "ORDER": ["Order", "my-order"],
        "ord*": ["Order"],
        " a ": ["a"],
        "x": [],
    }

    assert {text: list(page_of(["Order", "a", "my-order"], Query(text), None).names) for text in expected} == expected


def test_orders():
    known = {"busy": Tag("busy", 10), "idle": Tag("idle", 99), "slow": Tag("slow", 5)}
    metrics = {"busy": TagMetrics(100.0, 5000, 50.0), "slow": TagMetrics(1.0, 2, 2.0)}
    for sort, names in [
        ("rate", ["busy", "slow", "idle"]),
        ("memory", ["slow", "busy", "idle"]),
        ("days", ["busy", "slow", "idle"]),
        ("max_value", ["idle", "busy", "slow"]),
        ("name", ["busy", "idle", "slow"]),
    ]:
        key = sort_key(sort, lambda name: row_of(name, known[name], metrics.get(name), None))

        assert list(page_of(sorted(known), Query(sort=sort), key).names) == names, sort


def test_days_left_are_measured_or_else_at_the_current_rate():
    tag, drawn = Tag("a", 0, limit=864_000), TagMetrics(rate=1.0)

    assert row_of("a", tag, drawn, 3.5).days == 3.5
    assert row_of("a", tag, drawn, inf).days == row_of("a", tag, drawn, None).days == 10.0
    assert row_of("a", tag, TagMetrics(), inf).days is None


def test_a_row_of_memory_alone_says_so_and_what_is_short_is_marked():
    row = row_of("a", None, TagMetrics(10.0, 20, 2.0), None)
    ends = row_of("a", Tag("a", limit=10**6), TagMetrics(10.0), None)

    assert (row.tag, row.days, row.is_short, row.ends_soon) == (None, None, True, False)
    assert (ends.is_short, ends.ends_soon) == (False, True)
