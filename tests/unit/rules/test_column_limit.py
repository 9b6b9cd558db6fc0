"""From the type of a column to the limit of a tag, and from the limit to the size of a claim: plain numbers."""

from __future__ import annotations

import pytest

from allocator.errors import InvalidSetting
from allocator.rules.column_limit import limit_of, max_step_for

MAX_ID = 9_223_372_036_854_775_807


def test_the_limit_of_a_type():
    expected = {
        "TINYINT": 127,
        "TINYINT(3) UNSIGNED": 255,
        "SMALLINT": 32_767,
        "SMALLINT UNSIGNED": 65_535,
        "MEDIUMINT": 8_388_607,
        "MEDIUMINT(8) UNSIGNED": 16_777_215,
        "INT": 2_147_483_647,
        "INTEGER": 2_147_483_647,
        "integer(11)": 2_147_483_647,
        "INTEGER UNSIGNED": 4_294_967_295,
        "INTEGER(5) UNSIGNED ZEROFILL": 4_294_967_295,
        "BIGINT": MAX_ID,
        "BIGINT(20) UNSIGNED": MAX_ID,
        "NUMERIC(10, 0)": 9_999_999_999,
        "DECIMAL(5,0)": 99_999,
        "NUMERIC(6)": 999_999,
        "NUMERIC(18, 0)": 999_999_999_999_999_999,
        "NUMERIC(19, 0)": MAX_ID,
        "NUMERIC": MAX_ID,
        "NUMERIC(12, 2)": MAX_ID,
        "VARCHAR(20)": MAX_ID,
        "": MAX_ID,
    }

    assert {kind: limit_of(kind) for kind in expected} == expected


def test_a_claim_takes_little_of_a_small_range():
    for limit, step, usual, most in [
        (MAX_ID, 1000, 1_000_000, 1_000_000),
        (2_147_483_647, 1000, 1_000_000, 1_000_000),
        (2_047_999_999, 1000, 1_000_000, 999_999),
        (8_388_607, 1000, 1_000_000, 4095),
        (32_767, 1000, 1_000_000, 1000),
        (32_767, 5, 1_000_000, 15),
        (8_388_607, 1000, 2000, 2000),
        (100, 5000, 2000, 2000),
    ]:
        assert max_step_for(limit, step, usual) == most, (limit, step)


def test_what_is_no_number_is_refused(subtests):
    for wrong in [{"limit": "5"}, {"limit": 0}, {"step": None}, {"step": 0}]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match=next(iter(wrong))):
            max_step_for(**{"limit": 100, "step": 10, "usual": 1000} | wrong)
