"""What makes several databases one fleet, which ids and numbers are a slot's own, and which database is next."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.distinct import distinct

from allocator.errors import DatabaseUnavailable, InvalidDatabase, MaxValueWentBack, ShardMisconfigured
from allocator.fleet.rotation import FIRST_PAUSE, LONGEST_PAUSE, Rotation
from allocator.schemes.failover import Move
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import ALL, Residue, mark, residue_of
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
from allocator.schemes.ticket import check_ticket

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


# -- what was seen of the slots of a tag, and which numbers are a slot's own


places = st.integers(1, 50).flatmap(lambda step: st.tuples(st.integers(1, step), st.just(step)))


def test_a_window_holds_the_ids_of_the_remainder_and_no_others():
    for step in range(1, 6):
        for offset in range(1, step + 1):
            for last in range(4 * step, 6 * step):
                window = range(last - 4 * step + 1, last + 1)

                assert list(Residue(offset, step).ids(last, 4)) == [one for one in window if (one - offset) % step == 0]


@given(places, st.integers(0, 10**6), st.integers(1, 200))
def test_a_window_holds_as_many_ids_as_were_asked_for(place, before, size):
    residue = Residue(*place)
    found = residue.ids(before + size * residue.step, size)

    assert len(found) == size
    assert before < found[0] <= found[-1] <= before + size * residue.step
    assert {number % residue.step for number in found} == {residue.offset % residue.step}
    assert residue_of(found) == residue


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(1, 20)), max_size=30))
def test_the_windows_of_several_databases_have_no_id_in_common(step, claims):
    rows, ids = [0] * step, []
    for which, size in claims:
        rows[which % step] += size * step
        ids += Residue(which % step + 1, step).ids(rows[which % step], size)

    distinct(ids)


@given(st.integers(1, 64), st.integers(0, 6))
def test_each_node_and_each_worker_number_is_of_one_slot(step, bits):
    slots = [Residue(offset, step) for offset in range(1, step + 1)]

    assert sorted(slot.nth(n) for slot in slots for n in range(1, 4)) == [*range(1, 3 * step + 1)]
    assert sorted(number for slot in slots for number in slot.workers(bits)) == [*range(1 << bits)]


def test_a_slot_goes_on_above_what_it_gave_and_what_was_given_before_the_fleet():
    seen = {ALL: 50, Residue(1, 3): 80, Residue(2, 3): 30}

    assert mark({ALL: 50}, ALL) == 50
    assert mark(seen, Residue(1, 3)) == 80
    assert mark(seen, Residue(2, 3)) == 50
    assert mark(seen, Residue(3, 3)) == 50
    assert mark({}, ALL) == 0


@given(st.integers(0, MAX_ID), st.integers(0, MAX_ID))
def test_no_id_of_a_row_that_has_forgotten_its_fleet_is_above_what_was_seen(before, of_slot):
    assert mark({Residue(2, 3): of_slot}, ALL) == MAX_ID
    assert mark({ALL: before, Residue(2, 3): of_slot}, ALL) == MAX_ID


# -- the check of a ticket that REPLACE returns


def test_what_came_is_checked():
    slot = Residue(2, 3)

    assert check_ticket(101, slot, 0) == 101
    assert check_ticket(197, slot, 101) == 197
    assert check_ticket(1, ALL, 0) == 1
    for wrong in (102, 99):
        with pytest.raises(ShardMisconfigured, match=f"ticket {wrong} is not of this database, which is slot 2 of 3"):
            check_ticket(wrong, slot, 0)
    for seen in (101, 104):
        with pytest.raises(MaxValueWentBack, match=f"ticket 101 came after {seen}"):
            check_ticket(101, slot, seen)


# -- which database is next, and which is left alone


DOWN = DatabaseUnavailable("down")


@pytest.fixture
def rotation() -> Rotation:
    """Of two databases, of which the first has failed."""
    made = Rotation(2)
    made.failed(0, DOWN, 0.0)
    return made


def test_databases_are_used_in_turn_and_one_that_failed_is_skipped_at_once():
    rotation = Rotation(3)
    assert [rotation.next(0.0) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert rotation.failed(1, DOWN, 0.0)
    assert not rotation.failed(1, DOWN, 0.0), "it was left alone already"

    assert [rotation.next(0.0) for _ in range(4)] == [2, 0, 2, 0]


def test_it_is_probed_after_pauses_that_double(rotation):
    now, pauses = 0.0, []
    for _ in range(10):
        began = now
        while not rotation.due(now, 9):
            now += 0.01
        pauses.append(now - began)
        assert not rotation.due(now + LONGEST_PAUSE - 1, 9), "a probe is under way"
        rotation.failed(0, DOWN, now)

    assert pauses[0] == pytest.approx(FIRST_PAUSE, abs=0.02)
    assert all(1.5 < later / earlier < 2.5 for earlier, later in pairwise(pauses[:6]))
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE, abs=0.02)


def test_a_probe_whose_end_nobody_told_is_made_again(rotation):
    assert [rotation.due(now, 9) for now in (1.0, LONGEST_PAUSE, 1.0 + LONGEST_PAUSE)] == [[0], [], [0]]


def test_calls_that_fail_while_it_is_left_alone_do_not_lengthen_the_pause(rotation):
    for _ in range(50):
        rotation.failed(0, DOWN, 0.0)

    assert rotation.due(FIRST_PAUSE, 9) == [0]


def test_of_several_that_are_due_only_those_asked_for_count_as_being_probed():
    rotation = Rotation(3)
    for number in range(3):
        rotation.failed(number, DOWN, 0.0)

    assert (rotation.due(1.0, 1), rotation.due(1.0, 9), rotation.due(1.0, 9)) == ([0], [1, 2], [])


def test_one_that_passes_the_probe_and_fails_in_use_is_left_alone_for_longer_and_longer():
    rotation, now, pauses = Rotation(2), 0.0, []
    for _ in range(4):
        rotation.failed(0, DOWN, now)
        pauses.append(rotation.states[0].pause)
        now = rotation.states[0].probe_at
        assert rotation.due(now, 9) == [0]
        rotation.worked(0, now)
        assert ({rotation.next(now), rotation.next(now)}, rotation.states[0].error) == ({0, 1}, None)
    rotation.failed(0, DOWN, now + 31)

    assert pauses == [FIRST_PAUSE * 2**n for n in range(4)]
    assert rotation.states[0].pause == FIRST_PAUSE


def test_when_all_are_left_alone_it_says_for_how_long(rotation):
    rotation.failed(1, DOWN, 0.05)
    answer = rotation.next(0.06)

    assert answer.seconds == pytest.approx(FIRST_PAUSE - 0.06)
    assert rotation.due(5.0, 9) == [0, 1]
    assert rotation.next(5.0).seconds == pytest.approx(FIRST_PAUSE), "who waits for a probe does not spin"
