"""A tag and the column of its ids: each rule of the doctor, and two ranges side by side, from plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.errors import InvalidSetting
from allocator.rules.tag_column import ColumnFacts, Generator, beside, findings, held_at, is_apart, may_write
from allocator.schemes.tag import Tag

BIGINT, INT = 2**63 - 1, 2**31 - 1
SEQUENCE = Generator("DEFAULT nextval", "drop it", 5_001, BIGINT, "hold at {n}", is_below=True)
COUNTER = SEQUENCE._replace(name="AUTO_INCREMENT", is_below=False)
HELD_BELOW = SEQUENCE._replace(ends=1_005_000)
HELD_ABOVE = COUNTER._replace(next=2_005_001)
TRIGGER = Generator("the trigger w", "drop w")
PLAIN = ColumnFacts("shop.orders.id", "bigint", BIGINT, 5_000)
TAG = Tag("order", 6_000, skipped=5_000)
ABOVE = Tag("order", 1_010_000, skipped=1_005_000)
BELOW = Tag("order", 1_010_000, limit=2_005_000, skipped=1_005_000)
LEAVE = 1_000_000


def with_(*generators: Generator, **more: int) -> ColumnFacts:
    return PLAIN._replace(generators=generators, **more)


def test_nothing_is_found_where_no_id_can_come_twice():
    for facts, tag in (
        (PLAIN, TAG),
        (PLAIN._replace(greatest=6_000), TAG),  # the next id is 6,001
        (PLAIN._replace(greatest=0), Tag("order")),
        (PLAIN._replace(limit=INT), replace(TAG, limit=INT)),
        (PLAIN._replace(greatest=0), None),
        (with_(HELD_BELOW), ABOVE),
        (with_(HELD_ABOVE), BELOW),
        (with_(HELD_ABOVE._replace(next=2_005_009)), BELOW),  # both write
    ):
        assert [one for one in findings(facts, "order", tag) if one.severity != "note"] == [], (facts, tag)


WRONG = [
    (PLAIN, None, "tag-missing", "danger", "allocator tags create order --start-after 5000 --start-after-column "),
    (with_(SEQUENCE, greatest=0), None, "tag-missing", "danger", "allocator tags create order --start-after 5000 "),
    (PLAIN._replace(greatest=0), None, "tag-missing", "note", "allocator tags create order --start-after 0 "),
    (PLAIN._replace(greatest=6_001), TAG, "tag-below-column", "danger", "allocator tags set order --start-after 6001"),
    (PLAIN._replace(limit=INT), TAG, "tag-limit-above-column", "outage", f"allocator tags set order --limit {INT}"),
    (PLAIN._replace(limit=5_500), TAG, "tag-limit-above-column", "outage", "widen shop.orders.id"),
    (with_(SEQUENCE), TAG, "second-generator", "danger", "drop it"),
    (with_(HELD_BELOW), replace(ABOVE, skipped=1_004_999), "second-generator", "danger", "drop it"),
    (with_(HELD_ABOVE), replace(BELOW, limit=2_005_001), "second-generator", "danger", "drop it"),
    (with_(TRIGGER), ABOVE, "second-generator", "danger", "drop w"),
    (with_(Generator("AUTOINCREMENT")), TAG, "second-generator", "note", "name an id in each INSERT"),
]


def test_what_can_give_an_id_twice_or_fail_is_found():
    for facts, tag, name, severity, mend in WRONG:
        (found,) = findings(facts, "order", tag)
        assert (found.name, str(found.severity)) == (name, severity), (facts, tag)
        assert found.mend.startswith(mend), (facts, tag)
        assert "shop.orders.id" in found.found


def test_a_tag_that_was_raised_past_a_held_counter_may_have_issued_ids_of_its_range():
    """Processes may have some of 1 to 500 in memory, which the counter issues too."""
    assert not is_apart(HELD_BELOW, Tag("order", 1_005_000, skipped=1_004_500))


def test_the_counter_is_held_where_the_lower_range_has_room():
    assert held_at(with_(SEQUENCE), LEAVE) == 1_005_000
    assert held_at(with_(SEQUENCE, greatest=9_000), LEAVE) == 1_009_000
    assert held_at(with_(COUNTER), LEAVE) == 2_005_001
    assert held_at(with_(SEQUENCE, limit=3_005_000), LEAVE) == 1_005_000


def test_a_tag_beside_a_held_counter_has_the_other_range():
    for facts, start_after, limit, made in (
        (with_(HELD_BELOW), 0, None, (1_005_000, BIGINT)),
        (with_(HELD_BELOW), 1_006_000, 1_100_000, (1_006_000, 1_100_000)),
        (with_(HELD_BELOW, greatest=1_005_000), 0, None, (1_005_000, BIGINT)),
        (with_(HELD_BELOW, limit=INT), 0, None, (1_005_000, INT)),
        (with_(HELD_ABOVE), 0, 2_005_000, (1_005_000, 2_005_000)),
        (with_(HELD_ABOVE), 1_006_000, 2_005_000, (1_006_000, 2_005_000)),
        (with_(HELD_ABOVE, greatest=1_005_000), 0, 2_005_000, (1_005_000, 2_005_000)),
    ):
        start, end = beside(facts, LEAVE, start_after, limit)
        assert (start, end) == made, facts
        assert is_apart(facts.generators[0], Tag("order", start, limit=end, skipped=start))


def test_what_cannot_be_held_apart_is_refused():
    for facts, limit, sentence in (
        (PLAIN, None, "has no counter that issues ids"),
        (with_(TRIGGER, SEQUENCE), None, "from the trigger w, which cannot be held apart"),
        (with_(Generator("AUTOINCREMENT")), None, "stop the writers for a moment"),
        (with_(SEQUENCE), None, "may issue ids up to 9,223,372,036,854,775,807; first run: hold at 1005000$"),
        (with_(SEQUENCE._replace(ends=INT), limit=INT), None, "up to 2,147,483,647; first run: hold at 1005000$"),
        (with_(HELD_BELOW, greatest=1_005_001), None, "holds 1,005,001, and the tag would start after 1,005,000"),
        (with_(HELD_BELOW), INT + 1, "limit must be 1 to 2147483647"),
        (with_(HELD_ABOVE), None, "name the --limit that --dry-run printed"),
        (with_(COUNTER), 2_005_000, "is at 5,001, not above 2,005,000; first run: hold at 2005001$"),
        (with_(COUNTER._replace(next=2_005_000)), 2_005_000, "is at 2,005,000, not above"),
        (with_(HELD_ABOVE, greatest=1_005_001), 2_005_000, "the tag would start after 1,005,000; plan again"),
    ):
        narrow = facts._replace(limit=INT) if limit == INT + 1 else facts
        with pytest.raises(InvalidSetting, match=sentence):
            beside(narrow, LEAVE, 0, limit)


def test_a_column_without_room_for_two_ranges_is_refused():
    for counter, limit in ((SEQUENCE, 2_004_999), (COUNTER, 3_005_000)):
        with pytest.raises(InvalidSetting, match="too few for two ranges of 1,000,000; lower --leave"):
            held_at(with_(counter, limit=limit), LEAVE)


def test_a_trigger_that_may_write_ids():
    for body in [
        "NEW.id := nextval('s')",
        'new."id" = 7',
        "SET NEW.`id` = 7",
        "NEW := jsonb_populate_record(NEW, x)",
        "SELECT 7 INTO NEW.id",
        "SELECT * INTO STRICT new FROM t",
        "",
    ]:
        assert may_write(body, "id"), body


def test_a_trigger_that_writes_no_ids():
    for body in [
        "built in",
        "NEW.updated_at := now()",
        "NEW.identity := 7",
        "INSERT INTO log VALUES (NEW.id)",
        "IF NEW.id > 5 THEN",
    ]:
        assert not may_write(body, "id"), body
