"""Taking over a live column: the ranges, the refusals, and the proof that two ranges cannot meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.errors import InvalidSetting
from allocator.rules.takeover_ranges import (
    DAY,
    ColumnFacts,
    Ranges,
    Takeover,
    Trigger,
    a_day,
    back_ranges,
    issued,
    lower_range_ends_in,
    may_write,
    plan,
    problems,
    proof,
    refusal,
    seconds_of,
    still_writes,
    tag_refusal,
)
from allocator.schemes.tag import Tag

BIGINT, INT, SMALLINT = 2**63 - 1, 2**31 - 1, 2**15 - 1
WEEK = 7 * DAY

BELOW = ColumnFacts("public.orders.id", "bigint", BIGINT, 5_000, "orders_id_seq", 5_010, BIGINT)
ABOVE = replace(BELOW, place="shop.orders.id", counter="AUTO_INCREMENT", below=False)
RANGES = Ranges(5_011, 1_005_010, 1_005_011, BIGINT)
STARTED = Takeover("public.orders.id", "order", "started", RANGES, "orders_id_seq", 5_010, 1_000, 5_010, 1_000)
TAG = Tag("order", 1_005_010, limit=BIGINT)
NO_ROWS = 0


def test_below_the_counter_keeps_what_it_needs_and_the_tag_begins_right_above():
    assert plan(BELOW, 0, WEEK) == RANGES
    fast = plan(BELOW, 1_000_000, WEEK)

    assert fast.native_last == 5_010 + 4 * 7_000_000
    assert fast.tag_first == fast.native_last + 1
    assert not fast.meet
    assert fast.native_is_below


def test_a_row_above_the_counter_is_above_the_range_of_the_counter_too():
    assert plan(replace(BELOW, greatest=9_000_000), 0, WEEK).tag_first == 10_000_001


def test_above_the_tag_begins_past_what_is_given_while_the_command_runs():
    """AUTO_INCREMENT follows the greatest id, so the tag gets what is below."""
    found = plan(ABOVE, 240_000, WEEK)

    assert found.tag_first == 5_010 + 1_000 + 10_000 + 1
    assert found.tag_last == found.tag_first - 1 + 4 * 1_680_000
    assert found.native_first == found.tag_last + 1
    assert found.native_last == BIGINT
    assert not found.meet
    assert not found.native_is_below


def test_in_a_narrow_column_both_ranges_fit():
    for facts in [BELOW, ABOVE]:
        for limit, greatest, per_day in [(SMALLINT, 0, 0), (INT, 2_000_000_000, 1_000_000)]:
            found = plan(replace(facts, limit=limit, given=greatest, greatest=greatest), per_day, WEEK)
            sizes = (found.native_last - found.native_first + 1, found.tag_last - found.tag_first + 1)

            assert not found.meet, (facts, limit)
            assert max(found.native_last, found.tag_last) == limit, (facts, limit)
            assert min(sizes) >= min((limit - greatest) // 3, 28 * per_day or limit), (facts, limit)
            assert min(sizes) >= 2 * 7 * per_day, (facts, limit)
            assert min(found.native_first, found.tag_first) > greatest, (facts, limit)


def test_a_column_that_is_too_small_is_refused_with_its_numbers(subtests):
    for facts in [BELOW, ABOVE]:
        for limit, greatest, per_day in [
            (127, 0, 0),
            (SMALLINT, 32_000, 0),
            (INT, 2_140_000_000, 1_000_000),
            (INT, INT, 0),
        ]:
            with subtests.test(facts=facts, limit=limit):
                narrow = replace(facts, type="narrow", limit=limit, given=greatest, greatest=greatest)

                with pytest.raises(
                    InvalidSetting, match=f"ends at {limit:,}, and {limit - greatest:,} values are left: too few"
                ):
                    plan(narrow, per_day, WEEK)


REFUSED = {
    "replica": (replace(BELOW, is_replica=True), "read-only replica"),
    "partitioned": (replace(BELOW, is_partitioned=True), "public.orders is partitioned or has child tables"),
    "no key": (replace(BELOW, is_key=False), "public.orders.id has no primary or unique key of its own"),
    "no counter": (replace(BELOW, counter=""), "public.orders.id has no counter"),
    "downwards": (replace(BELOW, increment=-1), "counts down, by -1"),
    "trigger": (replace(BELOW, triggers=(Trigger("t", "NEW.id := 5;"),)), "trigger t on public.orders may write id"),
    "other": (replace(BELOW, obstacles=("the sequence s also serves another column",)), "the sequence s also serves"),
}


def test_what_cannot_be_taken_over_is_refused_with_one_sentence(subtests):
    for case, (facts, sentence) in REFUSED.items():
        with subtests.test(case=case):
            assert sentence in refusal(facts)
            with pytest.raises(InvalidSetting, match=refusal(facts).partition("(")[0]):
                plan(facts, 0, WEEK)


def test_a_trigger_that_may_write_ids():
    for text in [
        "NEW.id := nextval('s')",
        'new."id" = 7',
        "SET NEW.`id` = 7",
        "NEW := jsonb_populate_record(NEW, x)",
        "SELECT 7 INTO NEW.id",
        "SELECT * INTO STRICT new FROM t",
        "",
    ]:
        assert may_write(Trigger("t", text), "id"), text


def test_a_trigger_that_writes_no_ids():
    for text in [
        "built in",
        "NEW.updated_at := now()",
        "NEW.identity := 7",
        "INSERT INTO log VALUES (NEW.id)",
        "IF NEW.id > 5 THEN",
    ]:
        assert not may_write(Trigger("t", text), "id"), text


def test_a_tag_that_issued_ids_is_refused_unless_it_was_this_column_s_before():
    used = replace(TAG, claimed_at=5)

    assert tag_refusal(None, None) == tag_refusal(TAG, None) == tag_refusal(used, STARTED) == ""
    assert "has issued ids up to 1,005,010" in tag_refusal(used, None)
    assert "has issued ids" in tag_refusal(used, replace(STARTED, tag="other"))


# -- status


def test_nothing_is_wrong_while_counter_and_tag_are_held_in_their_ranges():
    held = replace(BELOW, ends=1_005_010)

    assert problems(STARTED, TAG, held, NO_ROWS) == []
    assert problems(STARTED, replace(TAG, max_value=1_006_010), held, 1_006_010) == []


WRONG = {
    "overlap": (replace(STARTED, ranges=RANGES._replace(native_last=1_005_011)), TAG, BELOW, NO_ROWS, "overlap"),
    "no tag": (STARTED, None, BELOW, NO_ROWS, "is gone; create it with --start-after 1005010"),
    "tag below": (STARTED, replace(TAG, max_value=1_005_009), BELOW, NO_ROWS, "below its range"),
    "tag above": (
        replace(STARTED, ranges=Ranges(2_000_001, BIGINT, 1, 2_000_000)),
        replace(TAG, limit=2_000_001),
        replace(BELOW, given=2_000_000),
        NO_ROWS,
        "may go to 2,000,001, above its range",
    ),
    "a stranger's row": (STARTED, TAG, BELOW, 1_005_011, "a row has 1,005,011, which tag 'order' has not"),
    "counter gone": (STARTED, TAG, replace(BELOW, counter=""), NO_ROWS, "the counter of public.orders.id is gone"),
    "counter released": (STARTED, TAG, replace(BELOW, ends=1_005_011), NO_ROWS, "the counter may go to 1,005,011"),
    "counter set back": (
        replace(STARTED, ranges=Ranges(2_000_001, BIGINT, 1_005_011, 2_000_000)),
        replace(TAG, limit=2_000_000),
        replace(ABOVE, given=1_999_999),
        NO_ROWS,
        "the counter is at 1,999,999, below its range",
    ),
}


def test_what_would_let_the_ranges_meet_is_said():
    for case, (takeover, tag, found, greatest, sentence) in WRONG.items():
        held = min(found.ends, takeover.ranges.native_last)
        facts = found if case == "counter released" else replace(found, ends=held)

        assert [sentence in one for one in problems(takeover, tag, facts, greatest)] == [True], case


def test_what_was_issued_since_the_start_is_told_by_the_counters():
    assert issued(STARTED, replace(TAG, max_value=1_006_010), 5_017) == (7, 1_000)
    assert issued(STARTED, None, 5_000) == (0, 0)


def test_a_finished_takeover_has_no_counter_to_look_at():
    assert problems(replace(STARTED, state="finished"), TAG, replace(BELOW, counter=""), NO_ROWS) == []
    assert "an INSERT without an id fails" in proof(replace(STARTED, state="finished"))


def test_the_end_of_the_lower_range_by_its_rate():
    day_later = STARTED.started_at + 86_400_000

    assert lower_range_ends_in(STARTED, TAG, 5_010 + 100_000, day_later) == 9.0
    assert lower_range_ends_in(STARTED, TAG, 5_010, day_later) is None
    above = replace(STARTED, ranges=Ranges(1_000_001, BIGINT, 1, 1_000_000))
    assert lower_range_ends_in(above, replace(TAG, max_value=250_000), 2_000_000, day_later) == 3.0
    assert lower_range_ends_in(above, None, 2_000_000, day_later) is None


# -- finish and back


def test_it_is_finished_when_the_counter_stood_still():
    for given, seconds, refused in [
        (5_010, 600, ""),
        (5_010, 599, "599 seconds ago"),
        (5_011, 900, "from 5,010 to 5,011"),
    ]:
        found = still_writes(STARTED, given, STARTED.given_at + 1000 * seconds, 600)

        assert (refused in found) if refused else found == "", (given, seconds)


def test_back_the_counter_goes_on_above_all_that_the_tag_may_still_give():
    drawn = replace(TAG, max_value=1_105_010)
    found = back_ranges(STARTED, drawn, replace(BELOW, greatest=1_100_000), 10_000_000, DAY)

    assert found.tag_last == 1_105_010 + 40_000_000
    assert found.native_first == found.tag_last + 1
    assert not found.meet
    assert back_ranges(STARTED, TAG, replace(BELOW, greatest=9_000_000), 0, DAY).tag_last == 10_000_000


def test_back_needs_room():
    narrow = replace(BELOW, limit=1_008_000)

    with pytest.raises(InvalidSetting, match="has only 2,990 values left"):
        back_ranges(STARTED, TAG, narrow, 0, DAY)


def test_durations_and_rates():
    assert [seconds_of(text) for text in ("7d", "12h", "30m", "90s", "1.5h")] == [604_800, 43_200, 1_800, 90, 5_400]
    for text in ("7", "d", "-1d", "7 days", ""):
        with pytest.raises(InvalidSetting, match="as in 7d"):
            seconds_of(text)
    assert a_day(10, 70, 60) == 86_400
    assert a_day(10, 70, 0) == a_day(70, 10, 60) == 0
