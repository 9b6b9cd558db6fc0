"""A tag and the column of its ids: each rule of the doctor, and two ranges side by side, from plain numbers."""

from dataclasses import replace

import pytest

from allocator.errors import InvalidSetting
from allocator.schemes.tag import Tag
from allocator.schemes.tag_column import (
    Column,
    Counter,
    end_of,
    findings,
    is_apart,
    is_late,
    limit_of,
    max_step_for,
    planned_start,
)

BIGINT, INT = 2**63 - 1, 2**31 - 1
SEQUENCE = Counter("public.s", 5_001, BIGINT, "hold at {n}", is_below=True)
COUNTER = Counter("AUTO_INCREMENT", 5_001, BIGINT, "hold at {n}")
LOOSE = Counter("a sequence")
HELD_BELOW = SEQUENCE._replace(ends=1_005_000)
HELD_ABOVE = COUNTER._replace(next=2_005_001)
PLAIN = Column(BIGINT, "shop.orders.id", 5_000)
TAG = Tag("order", 6_000, skipped=5_000)
ABOVE = Tag("order", 1_010_000, skipped=1_005_000)
BELOW = Tag("order", 1_010_000, limit=2_005_000, skipped=1_005_000)
WAITS = Tag("order", 1_005_000, limit=1_005_000, skipped=1_005_000)
TAKE = "name an id in each INSERT, and take the counter from the column"


def with_(counter: Counter, **more: int) -> Column:
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
    (with_(HELD_BELOW), replace(ABOVE, skipped=1_004_999), "second-generator", "danger", TAKE),
    # It gave 696 ids from 1,005,001 on before it skipped a gap: no MAXVALUE below the gap keeps the counter from them.
    (with_(SEQUENCE), Tag("order", 5_200_000, skipped=5_199_304), "second-generator", "danger", TAKE),
    (with_(HELD_BELOW), replace(ABOVE, skipped=5_000), "second-generator", "danger", TAKE),
    (with_(HELD_ABOVE), replace(BELOW, limit=2_005_001), "second-generator", "danger", TAKE),
    (with_(COUNTER._replace(next=1)), BELOW, "second-generator", "danger", "hold at 2005001"),  # after TRUNCATE
    (with_(COUNTER._replace(next=1)), replace(BELOW, limit=BIGINT), "second-generator", "danger", TAKE),
    (with_(LOOSE), ABOVE, "second-generator", "danger", TAKE),
    (with_(SEQUENCE), WAITS, "tag-waits", "outage", "hold at 1005000"),
    (with_(SEQUENCE._replace(next=1_005_000)), WAITS, "tag-waits", "outage", "hold at 1005000"),
    (with_(COUNTER), WAITS, "tag-waits", "outage", "hold at 2005001"),
    (with_(COUNTER._replace(next=1_005_000)), WAITS, "tag-waits", "outage", "hold at 2005001"),
]


def test_what_can_give_an_id_twice_or_fail_is_found():
    for facts, tag, name, severity, mend in WRONG:
        (found,) = findings(facts, tag)
        assert (found.name, str(found.severity)) == (name, severity), (facts, tag)
        assert found.mend.startswith(mend), (facts, tag)
        assert "shop.orders.id" in found.found


LATE = [
    with_(SEQUENCE._replace(next=1_005_001)),
    with_(COUNTER._replace(next=1_005_001)),
    with_(COUNTER._replace(next=2_005_000)),
    with_(COUNTER, limit=2_005_000),  # no room above the tag
    with_(COUNTER._replace(next=3_005_001)),  # past it: its rows may be deleted
    with_(LOOSE),
    with_(HELD_BELOW, greatest=1_005_001),
    with_(HELD_ABOVE, greatest=1_005_001),
]
IN_TIME = [with_(SEQUENCE._replace(next=1_005_000)), with_(COUNTER), with_(HELD_BELOW), with_(HELD_ABOVE), PLAIN]


def test_a_tag_that_waits_starts_higher_once_a_row_or_the_counter_came_to_its_range():
    assert [column for column in LATE + IN_TIME if is_late(column, WAITS)] == LATE
    assert [column for column in LATE if is_late(column, BELOW)] == []
    # One that was raised past a held counter: processes may have ids in memory, which the counter issues too.
    assert not is_apart(with_(HELD_BELOW), Tag("order", 1_005_000, skipped=1_004_500))


def test_the_tag_starts_where_the_lower_range_has_room():
    assert planned_start(with_(SEQUENCE)) == planned_start(with_(COUNTER)) == 1_005_000
    assert planned_start(with_(SEQUENCE, greatest=9_000)) == 1_009_000
    assert planned_start(with_(SEQUENCE, greatest=0)) == 1_005_000  # its rows were deleted
    for counter, limit in ((SEQUENCE, 2_005_000), (COUNTER, 3_005_000)):
        assert planned_start(with_(counter, limit=limit)) == 1_005_000
        with pytest.raises(InvalidSetting, match="too few for two ranges of 1,000,000; widen the column first"):
            planned_start(with_(counter, limit=limit - 1))
    for facts in (PLAIN, with_(LOOSE)):
        with pytest.raises(InvalidSetting, match="has no counter that can be held apart from a tag"):
            planned_start(facts)


def test_a_tag_that_waits_gets_the_range_beside_the_held_counter():
    assert WAITS.waits_beside_column
    for facts, limit in (
        (with_(HELD_BELOW), BIGINT),
        (with_(HELD_BELOW, limit=INT), INT),
        (with_(HELD_ABOVE), 2_005_000),
    ):
        tag = replace(WAITS, limit=end_of(WAITS, facts))
        assert (tag.limit, is_apart(facts, tag), tag.waits_beside_column) == (limit, True, False), facts
    for tag in (TAG, ABOVE, replace(BELOW, max_value=BELOW.limit), Tag("order", 5_000, limit=5_000, skipped=4_999)):
        assert end_of(tag, with_(LOOSE)) == tag.limit


# -- from the type of a column to the limit of a tag, and from the limit to the size of a claim: plain numbers


LIMITS = {
    127: ["TINYINT"],
    255: ["TINYINT(3) UNSIGNED"],
    32_767: ["SMALLINT"],
    65_535: ["SMALLINT UNSIGNED"],
    99_999: ["DECIMAL(5,0)"],
    999_999: ["NUMERIC(6)"],
    8_388_607: ["MEDIUMINT"],
    16_777_215: ["MEDIUMINT(8) UNSIGNED"],
    INT: ["INT", "INTEGER", "integer(11)"],
    2**32 - 1: ["INTEGER UNSIGNED", "INTEGER(5) UNSIGNED ZEROFILL"],
    9_999_999_999: ["NUMERIC(10, 0)"],
    10**18 - 1: ["NUMERIC(18, 0)"],
    BIGINT: ["BIGINT", "BIGINT(20) UNSIGNED", "NUMERIC(19, 0)", "NUMERIC", "NUMERIC(12, 2)", "VARCHAR(20)", ""],
}


def test_the_limit_of_a_type():
    assert {limit: [kind for kind in kinds if limit_of(kind) == limit] for limit, kinds in LIMITS.items()} == LIMITS


def test_a_claim_takes_little_of_a_small_range():
    for limit, step, usual, most in [
        (BIGINT, 1000, 1_000_000, 1_000_000),
        (2_047_999_999, 1000, 1_000_000, 999_999),
        (32_767, 1000, 1_000_000, 1000),
        (32_767, 5, 1_000_000, 15),
        (100, 5000, 2000, 2000),
    ]:
        assert max_step_for(limit, step, usual) == most, (limit, step)


def test_what_is_no_number_is_refused(subtests):
    for wrong in [{"limit": "5"}, {"limit": 0}, {"step": None}, {"step": 0}]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match=next(iter(wrong))):
            max_step_for(**{"limit": 100, "step": 10, "usual": 1000} | wrong)
