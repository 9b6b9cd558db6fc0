"""What a page is asked for."""

from __future__ import annotations

from allocator.service.console.views import query_of


def test_the_query_of_a_page():
    for given, page, sort in [
        ({}, 1, "name"),
        ({"page": "7", "sort": "rate"}, 7, "rate"),
        ({"page": "-1"}, 1, "name"),
        ({"page": "9" * 99}, 1, "name"),
        ({"page": "²"}, 1, "name"),
        ({"sort": "x"}, 1, "name"),
    ]:
        query = query_of(given)

        assert (query.page, query.sort) == (page, sort), given
