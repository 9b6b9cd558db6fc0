"""Arguments are refused with the number in the sentence."""

from collections.abc import Callable
from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from allocator import Allocator, PublicIds, Snowflake, inspect_id
from allocator.errors import InvalidArgument, InvalidCount, InvalidSetting, InvalidTag, MaxValueWentBack, UnknownTag
from allocator.schemes.shared.argument_checks import check_count, check_reserve, check_seconds, check_tag
from allocator.schemes.shared.residues import ALL, NONE, Residue
from allocator.schemes.tag import Tag, settle


def test_a_tag_may_be():
    for tag in ["order", "A", "0", "a" * 64, "shop.order:2024-v1_x", StrEnum("Names", {"ORDER": "order"}).ORDER]:
        assert str(tag) == check_tag(tag), tag
        assert type(check_tag(tag)) is str, tag


def test_a_tag_may_not_be(subtests):
    odd = ["", "a" * 65, " order", "order ", "order\n", "-a", ".a", "ö", "orde\u0301", "a b", "a'b", 'a"', "a;", "a/b"]
    for tag in odd + ["a\0b", None, 1, True, b"order", ["order"], {}, 1.5, "\x1b[31m", "x" * 10_000]:
        with subtests.test(tag=tag):
            with pytest.raises(InvalidTag, match="a tag is 1 to 64") as caught:
                check_tag(tag)

            assert len(str(caught.value)) < 250
            assert str(caught.value).isprintable()


def test_a_count_and_seconds_may_not_be(subtests):
    for count in [-1, 10_001, 10**9, 10**5000, True, False, "5", 5.0, None, [1]]:
        with subtests.test(count=count), pytest.raises(InvalidCount, match="0 to 10000|from 0 to 10000"):
            check_count(count)
    for value in [-1, float("nan"), float("inf"), True, "5", None, 86_401]:
        with subtests.test(value=value), pytest.raises(InvalidSetting, match="timeout must be"):
            check_seconds("timeout", value, 0.0)


def test_a_count_may_be_an_integer_of_numpy():
    """As `len(frame)` is an int, and `mask.sum()` is none."""
    numpy = pytest.importorskip("numpy")
    count = numpy.array([True, True, False]).sum()

    assert (type(check_count(count)), type(check_reserve(count))) == (int, int)
    assert PublicIds(b"k" * 16).encode(numpy.int64(5)) == PublicIds(b"k" * 16).encode(5)
    for refused in (numpy.float64(2), numpy.bool_(True), numpy.array([1])):
        with pytest.raises(InvalidCount):
            check_count(refused)


def test_the_refused_number_is_in_the_sentence():
    with pytest.raises(InvalidCount, match=r"^count must be 0 to 10000, got 10001; for larger blocks use reserve\(\)$"):
        check_count(10_001)
    with pytest.raises(InvalidCount, match=r"^count must be 1 to 10000000000000, got 100000000000000$"):
        check_reserve(10**14)
    with pytest.raises(InvalidTag, match="got a number of 16610 bits$"):
        check_tag(HUGE)


class Unshown:
    def __repr__(self) -> str:
        raise ZeroDivisionError


HUGE = 10**5000
ARGUMENTS: list[Callable[[Any], object]] = [
    lambda value: Allocator("sqlite://").next_id(value),
    lambda value: Allocator(shards=value),
    lambda value: Snowflake(layout=value),
    lambda value: inspect_id(5, scheme=value),
    PublicIds(b"k" * 16).encode,
]
"""One of each room that has arguments."""


def test_what_repr_refuses_is_refused_in_a_sentence_too(subtests):
    """Python writes no integer of more than 4300 digits, and no float of more than 308."""
    for refused, value in product(ARGUMENTS, (HUGE, 10**400, [HUGE], Unshown())):
        with subtests.test(value=type(value)), pytest.raises(InvalidArgument) as caught:
            refused(value)
        assert len(str(caught.value)) < 250


def test_a_tag_that_does_not_add_up_is_refused(subtests):
    for change, sentence in [
        ({"step": 0}, "step must be 1 to 100000000, got 0"),
        ({"step": True}, "step must be a whole number"),
        ({"step": 20, "max_step": 10}, "step must be at most max_step, which is 10, got 20"),
        ({"limit": 2**63}, "limit must be 1 to 9223372036854775807, got 9223372036854775808"),
        ({"limit": 10, "max_value": 11}, "start_after must be 0 to 10, got 11"),
        ({"max_value": -1}, "got -1"),
    ]:
        with subtests.test(change=change), pytest.raises(InvalidSetting, match=sentence):
            Tag("order", **change).checked()


def test_a_claim_that_no_longer_fits_takes_what_remains_unless_it_is_exact():
    assert settle(Tag("order", max_value=93, limit=100), "order", 10, {}) == 7
    with pytest.raises(InvalidCount, match="at most 7, the ids left of tag 'order', got 10"):
        settle(Tag("order", max_value=93, limit=100), "order", 10, {}, exact=True)
    # One that lost a race is tried again as it was.
    assert settle(Tag("order", max_value=50), "order", 10, {ALL: 50}) == 10


def test_a_row_of_no_fleet_where_one_was_seen_has_forgotten_ids():
    """As after a restore to before the fleet was made; one that is being deleted has not."""
    seen = {ALL: 1010, Residue(1, 2): 1049}
    with pytest.raises(MaxValueWentBack, match="its fleet is forgotten .* ids up to 1049"):
        settle(Tag("order", max_value=5000), "order", 10, seen)
    with pytest.raises(UnknownTag, match="is being deleted; to end that: allocator tags delete order"):
        settle(Tag("order", max_value=5000, residue=NONE), "order", 10, seen)
    assert settle(Tag("order", max_value=5000, residue=Residue(2, 3)), "order", 10, seen) == 10
