"""Flask's extension: configuration, the application that is being served, and another allocator in tests."""

from __future__ import annotations

import gc

import pytest

from allocator import Allocator

flask = pytest.importorskip("flask")

from allocator.integrations.flask import Allocation, current_allocator, use  # noqa: E402


def app_with(**config: object) -> flask.Flask:
    app = flask.Flask("shop")
    app.config.update(config)
    Allocation(app)
    return app


def test_each_application_has_an_allocator_of_its_own():
    one, other = app_with(ALLOCATOR_DATABASE_URL="sqlite://"), app_with(ALLOCATOR_DATABASE_URL="sqlite://")
    with one.app_context():
        assert current_allocator.next_ids("order", 3) == [1, 2, 3]
        assert current_allocator.next_id("order") == 4
    with other.app_context():
        assert current_allocator.next_id("order") == 1


def test_a_route_draws_and_a_test_lends_another(tmp_path):
    app = app_with(ALLOCATOR_DATABASE_URL=f"sqlite:///{tmp_path}/ids.db")
    app.add_url_rule("/", view_func=lambda: str(current_allocator.next_id("order")))
    with Allocator("sqlite://") as ids, use(app, ids):
        ids.tags.create("order", start_after=700)
        assert app.test_client().get("/").text == "701"

    assert app.test_client().get("/").text == "1"


def test_an_application_that_is_given_a_second_time_keeps_its_allocator():
    app = app_with(ALLOCATOR_DATABASE_URL="sqlite://")
    with app.app_context():
        sequence = current_allocator.sequence("order")
        assert sequence.next_id() == 1
        Allocation(app)
        gc.collect()
        assert [sequence.next_id(), current_allocator.next_id("order"), *sequence.reserve(1)] == [2, 3, 1001]
