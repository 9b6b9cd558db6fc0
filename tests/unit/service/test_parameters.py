"""What a query and a body may hold."""

from __future__ import annotations

import json

import pytest
from allocator.service.parameters import MAX_QUERY, choice, flag, number, read_body, read_query, required
from hypothesis import given
from hypothesis import strategies as st

from allocator.errors import AllocatorError, InvalidCount, InvalidSetting

FIELDS = (
    number("count", 1, 10, "", error=InvalidCount),
    flag("exact", ""),
    choice("scheme", ("a", "b"), ""),
    required(number("needed", 0, 5, ""), 1),
)


def test_fields_are_read_as_what_they_are():
    assert read_query(b"count=3&exact=true&scheme=b&needed=0", FIELDS) == {
        "count": 3,
        "exact": True,
        "scheme": "b",
        "needed": 0,
    }
    assert read_body(b'{"needed": "5", "count": 1}', FIELDS) == {"needed": 5, "count": 1}


def test_an_odd_query_is_refused(subtests):
    for raw, sentence in [
        (b"", "parameter needed is missing"),
        (b"needed=1&x=1", "unknown parameter 'x'; allowed: count, exact, scheme, needed"),
        (b"needed=1&needed=1", "parameter 'needed' occurs twice"),
        (b"needed=1&count=0", "count must be 1 to 10, got 0"),
        (b"needed=1&count=%31%30%30", "got 100"),
        (b"needed=1&exact=yes", "exact must be true or false"),
        (b"needed=1&scheme=c", "scheme must be one of a, b"),
        (b"needed", "needed must be a whole number"),
        (b"needed=" + b"1" * MAX_QUERY, "the query may have at most"),
        (b"\xff\xfe=1", "unknown parameter"),
    ]:
        with subtests.test(sentence=sentence), pytest.raises(AllocatorError, match=sentence):
            read_query(raw, FIELDS)


def test_a_count_is_refused_as_one():
    with pytest.raises(InvalidCount):
        read_query(b"needed=1&count=99", FIELDS)
    with pytest.raises(InvalidSetting):
        read_query(b"needed=99", FIELDS)


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(raw):
    for read in (read_query, read_body):
        try:
            read(raw, FIELDS)
        except AllocatorError as error:
            sentence = str(error)
        else:
            sentence = ""
        assert "\n" not in sentence


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from([field.name for field in FIELDS]) | st.text(max_size=5), json_values, max_size=4)
)
def test_whatever_json_comes_is_read_or_refused(value):
    try:
        found = read_body(json.dumps(value).encode(), FIELDS)
    except AllocatorError:
        return
    assert found.keys() <= {field.name for field in FIELDS}
