"""The permutation behind public ids: one to one, keyed, and without order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.distinct import distinct

from allocator.public_ids.permutation import Permutation
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID, MAX_ID

KEY = bytes(range(32))
limits = st.one_of(st.sampled_from([MAX_ID, JAVASCRIPT_MAX_ID]), st.integers(1, MAX_ID))


def test_every_number_up_to_the_limit_is_that_of_one_id():
    for limit in [*range(1, 70), 127, 128, 255, 256, 257, 511, 1000, 1023, 1024, 1025, 4095]:
        permutation = Permutation(KEY, limit)
        numbers = [permutation.forward(id_) for id_ in range(1, limit + 1)]

        assert sorted(numbers) == list(range(1, limit + 1)), limit
        assert [permutation.back(number) for number in numbers] == list(range(1, limit + 1)), limit


@settings(max_examples=150)
@given(st.binary(min_size=16, max_size=64), limits, st.data())
def test_back_is_the_inverse_of_forward(key: bytes, limit: int, data: st.DataObject):
    permutation = Permutation(key, limit)
    id_ = data.draw(st.integers(1, limit))
    number = permutation.forward(id_)

    assert 1 <= number <= limit
    assert permutation.back(number) == id_
    assert permutation.forward(permutation.back(id_)) == id_


@settings(max_examples=60)
@given(st.sets(st.integers(1, MAX_ID), min_size=2, max_size=30))
def test_no_two_ids_have_one_number(ids: set[int]):
    permutation = Permutation(KEY, MAX_ID)

    assert distinct(permutation.forward(id_) for id_ in ids)


def test_the_numbers_of_ids_in_a_row_have_no_order():
    permutation = Permutation(KEY, MAX_ID)
    numbers = [permutation.forward(id_) for id_ in range(1, 2001)]

    assert 900 < sum(one < two for one, two in pairwise(numbers)) < 1100
    assert 900 < sum(number > MAX_ID // 2 for number in numbers) < 1100
    assert len({two - one for one, two in pairwise(numbers)}) == 1999


def test_each_bit_of_an_id_or_of_the_key_changes_half_of_the_number():
    for limit in [MAX_ID, JAVASCRIPT_MAX_ID]:
        bits = limit.bit_length()
        one, other = Permutation(KEY, limit), Permutation(bytes([1, *KEY[1:]]), limit)
        ids = range(1000, 1040)
        by_bit = [one.forward(id_) ^ one.forward(id_ ^ 1 << bit) for id_ in ids for bit in range(0, bits - 1, 5)]
        by_key = [one.forward(id_) ^ other.forward(id_) for id_ in ids]

        for changed in (by_bit, by_key):
            assert 0.45 < sum(map(int.bit_count, changed)) / (bits * len(changed)) < 0.55, limit


def test_a_known_answer():
    assert [Permutation(b"key" * 8, 10).forward(id_) for id_ in range(1, 11)] == [2, 10, 5, 9, 1, 8, 6, 4, 7, 3]
