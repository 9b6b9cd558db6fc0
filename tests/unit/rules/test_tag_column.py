"""A tag and the column of its ids: each rule of the doctor, and two ranges side by side, from plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.errors import InvalidSetting
from allocator.rules.tag_column import (
    ColumnFacts,
    Counter,
    findings,
    is_apart,
    is_closed,
    opened,
    planned_start,
)
from allocator.schemes.tag import Tag

BIGINT, INT = 2**63 - 1, 2**31 - 1
SEQUENCE = Counter("public.s", 5_001, BIGINT, "hold at {n}", is_below=True)
COUNTER = Counter("AUTO_INCREMENT", 5_001, BIGINT, "hold at {n}")
LOOSE = Counter("a sequence")
HELD_BELOW = SEQUENCE._replace(ends=1_005_000)
HELD_ABOVE = COUNTER._replace(next=2_005_001)
PLAIN = ColumnFacts("shop.orders.id", BIGINT, 5_000)
TAG = Tag("order", 6_000, skipped=5_000)
ABOVE = Tag("order", 1_010_000, skipped=1_005_000)
BELOW = Tag("order", 1_010_000, limit=2_005_000, skipped=1_005_000)
WAITS = Tag("order", 1_005_000, limit=1_005_000, skipped=1_005_000)
TAKE = "name an id in each INSERT, and take the counter from the column"


def with_(counter: Counter, **more: int) -> ColumnFacts:
    return PLAIN._replace(counter=counter, **more)


def test_nothing_is_found_where_no_id_can_come_twice():
    for facts, tag in (
        (PLAIN, TAG),
        (PLAIN._replace(greatest=6_000), TAG),  # the next id is 6,001
        (PLAIN._replace(greatest=0), Tag("order")),
        (with_(HELD_BELOW), ABOVE),
        (with_(HELD_ABOVE), BELOW),
        (with_(HELD_ABOVE._replace(next=2_005_009)), BELOW),  # both write
        (with_(HELD_BELOW, greatest=1_005_000), WAITS),
        (with_(HELD_ABOVE, greatest=1_005_000), WAITS),
    ):
        assert list(findings(facts, tag)) == [], (facts, tag)


WRONG = [
    (PLAIN._replace(greatest=6_001), TAG, "tag-below-column", "danger", "allocator tags set order --start-after 6001"),
    (with_(SEQUENCE), TAG, "second-generator", "danger", TAKE),
    (with_(HELD_BELOW), replace(ABOVE, skipped=1_004_999), "second-generator", "danger", "hold at 1004999"),
    (with_(HELD_BELOW), replace(ABOVE, skipped=5_000), "second-generator", "danger", TAKE),
    (with_(HELD_ABOVE), replace(BELOW, limit=2_005_001), "second-generator", "danger", TAKE),
    (with_(COUNTER._replace(next=1)), BELOW, "second-generator", "danger", "hold at 2005001"),  # after TRUNCATE
    (with_(COUNTER._replace(next=1)), replace(BELOW, limit=BIGINT), "second-generator", "danger", TAKE),
    (with_(LOOSE), ABOVE, "second-generator", "danger", TAKE),
    (with_(SEQUENCE), WAITS, "tag-waits", "outage", "hold at 1005000"),
    (with_(SEQUENCE._replace(next=1_005_000)), WAITS, "tag-waits", "outage", "hold at 1005000"),
    (with_(SEQUENCE._replace(next=1_005_001)), WAITS, "tag-waits", "outage", "allocator tags delete order; then "),
    (with_(COUNTER), WAITS, "tag-waits", "outage", "hold at 2005001"),
    (with_(COUNTER._replace(next=1_005_000)), WAITS, "tag-waits", "outage", "hold at 2005001"),
    (with_(COUNTER._replace(next=1_005_001)), WAITS, "tag-waits", "outage", "allocator tags delete order; then "),
    (with_(COUNTER._replace(next=2_005_000)), WAITS, "tag-waits", "outage", "allocator tags delete order; then "),
    (with_(HELD_BELOW, greatest=1_005_001), WAITS, "tag-below-column", "danger", "allocator tags delete order; then "),
    (with_(HELD_ABOVE, greatest=1_005_001), WAITS, "tag-below-column", "danger", "allocator tags delete order; then "),
]


def test_what_can_give_an_id_twice_or_fail_is_found():
    for facts, tag, name, severity, mend in WRONG:
        (found,) = findings(facts, tag)
        assert (found.name, str(found.severity)) == (name, severity), (facts, tag)
        assert found.mend.startswith(mend), (facts, tag)
        assert "shop.orders.id" in found.found


def test_a_tag_that_was_raised_past_a_held_counter_may_have_issued_ids_of_its_range():
    """Processes may have some of 1 to 500 in memory, which the counter issues too."""
    assert not is_apart(HELD_BELOW, Tag("order", 1_005_000, skipped=1_004_500))


def test_the_tag_starts_where_the_lower_range_has_room():
    assert planned_start(with_(SEQUENCE)) == planned_start(with_(COUNTER)) == 1_005_000
    assert planned_start(with_(SEQUENCE, greatest=9_000)) == 1_009_000
    assert planned_start(with_(SEQUENCE, greatest=0)) == 1_005_000  # its rows were deleted
    for counter, limit in ((SEQUENCE, 2_005_000), (COUNTER, 3_005_000)):
        assert planned_start(with_(counter, limit=limit)) == 1_005_000
        with pytest.raises(InvalidSetting, match="too few for two ranges of 1,000,000; widen the column first"):
            planned_start(with_(counter, limit=limit - 1))


def test_a_tag_that_waits_gets_the_range_beside_the_held_counter():
    assert is_closed(WAITS)
    for facts, limit in (
        (with_(HELD_BELOW), BIGINT),
        (with_(HELD_BELOW, limit=INT), INT),
        (with_(HELD_ABOVE), 2_005_000),
    ):
        tag = opened(WAITS, facts)
        assert tag.limit == limit, facts
        assert is_apart(facts.counter, tag)
        assert not is_closed(tag)
    for tag in (TAG, ABOVE, replace(BELOW, max_value=BELOW.limit), Tag("order", 5_000, limit=5_000, skipped=4_999)):
        assert opened(tag, with_(LOOSE)) is tag


def test_what_cannot_be_held_apart_is_refused():
    for facts in (PLAIN, with_(LOOSE)):
        with pytest.raises(InvalidSetting, match="has no counter that can be held apart from a tag"):
            planned_start(facts)
