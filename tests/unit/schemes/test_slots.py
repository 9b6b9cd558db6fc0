"""What makes several databases one fleet, and what may be added to it."""

from __future__ import annotations

import pytest

from allocator.errors import InvalidDatabase, ShardMisconfigured
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import (
    Shard,
    Word,
    check_addition,
    check_all,
    check_list,
    check_slots,
    check_word,
    unasked,
    union,
    word_of,
)

HERE = Move("run", 7)


def row(slot: int, *taken: int, under: int = 7, fleet: str = "7f3a91c2") -> Shard:
    return Shard(fleet, Residue(slot, 4), taken, under, move=HERE)


def test_a_word_is_a_fleet_and_a_slot():
    assert word_of("7f3a91c2.12") == Word("7f3a91c2", 12)
    assert str(Word("7f3a91c2", 12)) == "7f3a91c2.12"
    assert row(2).word == Word("7f3a91c2", 2)
    assert Shard().word is None
    for wrong in ("", "7f3a91c2", "7f3a91c2.0", "7f3a91c2.x", "7F3A91C2.1", "7f3a91c2.100", "7f3a91c2.1 "):
        with pytest.raises(InvalidDatabase, match="is no fleet and slot, such as"):
            word_of(wrong)


def test_a_list_names_one_fleet_and_each_slot_once():
    one, two, other = Word("7f3a91c2", 1), Word("7f3a91c2", 2), Word("00000000", 2)
    check_list([("a", one), ("b", two)])
    for words, sentence in (
        ([("a", one), ("b", None)], "b is one of several databases, and its URL does not say its slot"),
        ([("a", one), ("b", one)], "a and b both say slot 7f3a91c2.1"),
        ([("a", one), ("b", other)], "a is of fleet 7f3a91c2, and b of 00000000"),
    ):
        with pytest.raises(InvalidDatabase, match=sentence):
            check_list(words)


def test_a_row_is_what_its_url_says():
    check_word("a", Word("7f3a91c2", 2), row(2))
    for found, sentence in (
        (row(1), "the database is slot 7f3a91c2.1: it is another one, or a copy"),
        (row(2, fleet="00000000"), "the database is slot 00000000.2"),
        (Shard(), "the database is in no fleet; if it is new: allocator shards add URL"),
    ):
        with pytest.raises(ShardMisconfigured, match=sentence):
            check_word("a", Word("7f3a91c2", 2), found)


def test_a_change_that_must_reach_all_knows_every_slot_that_any_row_knows():
    rows = [row(1, 1, 2), row(2, 1, 2, 4)]
    assert union(*(one.taken for one in rows)) == (1, 2, 4)
    assert unasked(rows) == [4]
    check_all([Shard()], "a start")
    check_all([*rows, row(4, 1, 4)], "a start")
    with pytest.raises(ShardMisconfigured, match="a start needs the database of every slot, and slot 4 was not"):
        check_all(rows, "a start")


def test_a_slot_that_any_row_knows_as_lost_is_asked_no_more_and_not_given_again():
    rows = [row(1, 1, 2, 3), row(3, 1, -2, 3)]
    assert union(*(one.taken for one in rows)) == (1, -2, 3)
    check_all(rows, "a start")
    check_addition(rows, 4, (), is_unused=False)
    for is_unused in (False, True):
        with pytest.raises(ShardMisconfigured, match="slot 2 is taken"):
            check_addition(rows, 2, (), is_unused)


def test_how_many_slots_there_may_be():
    check_slots(2)
    check_slots(64)
    for wrong in (1, 65):
        with pytest.raises(ShardMisconfigured, match=f"a fleet has 2 to 64 slots, got {wrong}"):
            check_slots(wrong)


def test_what_may_be_added():
    rows = [row(1, 1, 2), row(2, 1, 2)]
    check_addition(rows, 3, (), is_unused=False)
    check_addition(rows[:1], 3, (2,), is_unused=False)
    check_addition([row(1, 1, 3, under=1)], 3, (), is_unused=True)
    check_addition([row(1, 1, 2, under=1), row(2, 1, 2)], 3, (), is_unused=False)
    for known, slot, without, is_unused, sentence in (
        ([Shard()], 2, (), False, "are no fleet; make one first"),
        ([row(1, 1), row(2, 1, fleet="00000000")], 3, (), False, "are no fleet"),
        (rows[:1], 3, (), False, "slot 2 must answer too"),
        (rows, 3, (2,), False, "slot 2 answers, so it is not lost; leave --without 2 out"),
        (rows, 5, (), False, "has the slots 1 to 4, got 5"),
        (rows, 0, (), True, "has the slots 1 to 4, got 0"),
        (rows, 2, (), False, "slot 2 is taken"),
        (rows, 2, (), True, "slot 2 is taken"),
        ([row(1, 1, under=1)], 2, (), False, "moved to another server since a slot was last added"),
    ):
        with pytest.raises(ShardMisconfigured, match=sentence):
            check_addition(known, slot, without, is_unused)
