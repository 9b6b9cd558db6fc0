"""Bit layouts, and the pure cores that use them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.errors import InvalidId, InvalidSetting
from allocator.schemes.formats.bit_layout import Layout, layout_from_text
from allocator.schemes.meteor import METEOR
from allocator.schemes.snowflake import SNOWFLAKE


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    cuts = sorted(draw(st.sets(st.integers(2, 63), min_size=1, max_size=6)))
    edges = [1, *cuts, 64]
    return Layout(sign=1, **{f"f{n}": b - a for n, (a, b) in enumerate(pairwise(edges))})


@settings(max_examples=60)
@given(layouts(), st.integers(0, 2**63 - 1))
def test_pack_and_unpack_are_inverse(layout: Layout, number: int):
    assert layout.pack(**layout.unpack(number)) == number


@settings(max_examples=60)
@given(layouts(), st.data())
def test_unpack_and_pack_are_inverse(layout: Layout, data: st.DataObject):
    values = {name: data.draw(st.integers(0, layout.limit(name))) for name in layout.widths if name != "sign"}

    assert layout.unpack(layout.pack(**values)) == values


def test_masks_and_shifts_follow_from_the_widths():
    assert [METEOR.shift(name) for name in METEOR.widths] == [63, 34, 14, 3, 0]
    assert METEOR.limit("node") == 1_048_575
    assert str(METEOR) == "1/29/20/11/3"
    assert Layout(sign=1, a=63) != Layout(sign=1, b=63)


def test_a_field_of_time_says_when_it_runs_out():
    assert METEOR.runs_out("second", 1_607_558_400).isoformat() == "2037-12-14T18:48:31+00:00"
    assert SNOWFLAKE.runs_out("timestamp", 1_288_834_974.657, 1000).isoformat() == "2080-07-10T17:30:30.208000+00:00"


def test_a_layout_that_does_not_add_up_is_refused(subtests):
    for widths, sentence in [
        ({"sign": 1, "a": 62}, "the widths of a layout must add up to 64, got 1 \\+ 62 = 63"),
        ({"sign": 1, "a": 64}, "the width of a must be 1 to 63, got 64"),
        ({"a": 64}, "must be 1 to 63"),
        ({"a": 63, "sign": 1}, "must begin with sign=1"),
        ({"sign": 1, "a": 63, "b": 0}, "the width of b must be 1 to 63, got 0"),
        ({"sign": 1, "a": True, "b": 62}, "whole number"),
        ({}, "got 0 = 0"),
    ]:
        with subtests.test(widths=widths), pytest.raises(InvalidSetting, match=sentence):
            Layout(**widths)


def test_a_value_out_of_its_field_is_refused():
    for values, sentence in (
        ({"node": 1 << 20}, "node must be 0 to 1048575, got 1048576"),
        ({"nope": 1}, "has no field"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            METEOR.pack(**values)
    with pytest.raises(InvalidId, match="an id must be"):
        METEOR.unpack(1 << 63)


def test_a_layout_is_five_widths():
    assert layout_from_text(str(SNOWFLAKE), SNOWFLAKE) == SNOWFLAKE
    for odd in (
        "1/41/5/5",
        "1/41/5/5/13",
        "0/0/0/0/0",
        "a/b/c/d/e",
        "",
        5,
        "1/41/5/5/12/0",
        "1/" + "9" * 30 + "/1/1/1",
    ):
        with pytest.raises(InvalidSetting):
            layout_from_text(odd, SNOWFLAKE)
