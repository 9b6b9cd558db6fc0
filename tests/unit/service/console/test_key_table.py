"""The rows of the page of integer keys."""

from __future__ import annotations

from math import inf

import pytest

from allocator.rules.key_columns import KeyColumn
from allocator.service.console.key_table import rows_of


def key(name: str, greatest: int | None) -> KeyColumn:
    return KeyColumn("shop", name, "integer", 1000, greatest)


def test_what_ends_first_is_above_and_then_what_is_fuller():
    keys = [key("empty", 0), key("full", 999), key("fast", 10), key("slow", 10), key("half", 500)]
    rows = rows_of(keys, {"shop.fast": 3.0, "shop.slow": 3000.0, "shop.half": inf})

    assert [row.key.column for row in rows] == ["fast", "slow", "full", "half", "empty"]
    assert [row.days for row in rows] == [3.0, 3000.0, None, None, None]


@pytest.mark.parametrize(
    ("greatest", "days", "needs"),
    [(10, inf, False), (10, 365.0, False), (10, 364.0, True), (799, inf, False), (800, inf, True), (None, inf, True)],
)
def test_a_key_needs_attention_where_it_ends_within_a_year_or_is_four_fifths_full_or_unread(greatest, days, needs):
    (row,) = rows_of([key("id", greatest)], {"shop.id": days})

    assert row.needs_attention is needs
