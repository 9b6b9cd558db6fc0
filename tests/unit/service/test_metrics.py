"""Who sees which figures."""

from __future__ import annotations

import pytest

from allocator.service.metrics import Figures, tag_of


@pytest.mark.parametrize(
    ("labels", "tag"),
    [
        ({"scheme": "segment", "tag": "order"}, "order"),
        ({"scheme": "meteor", "tag": ""}, ""),
        ({"what": "tag order"}, "order"),
        ({"what": "key public.orders.id"}, "public.orders.id"),
        ({"what": "meteor node"}, ""),
        ({"what": "tag", "outcome": "ok"}, ""),
        ({"space": "billing", "state": "free"}, "billing"),
        ({}, ""),
    ],
)
def test_which_tag_a_series_is_about(labels, tag):
    assert tag_of(labels) == tag


def test_the_days_of_a_tag_are_for_who_sees_it():
    figures = Figures()
    for what in ("tag mine", "tag yours", "meteor node"):
        figures.days.labels(what).set(5)
    found = figures.text(lambda name: name == "mine").decode()

    assert 'allocator_days_left{what="tag mine"} 5.0' in found
    assert 'what="meteor node"' in found
    assert "yours" not in found
