"""What a page is asked for, and what a form changes."""

from __future__ import annotations

from allocator.service.console.views import query_of, settings_of


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


def test_only_what_was_filled_in_and_changed_is_set():
    form = {
        "step": "5",
        "was_step": "5",
        "limit": "7",
        "was_limit": "9",
        "failover_gap": "",
        "start_after": "3",
        "proof": "x",
    }

    assert settings_of(form) == {"limit": 7, "start_after": 3}
