"""Offset and step: which ids are a shard's own, and residues: the same for the segments of a tag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.distinct import distinct

from allocator.errors import MaxValueWentBack, ShardMisconfigured
from allocator.schemes.shared.residues import ALL, Residue, mark, residue_of
from allocator.schemes.ticket import ShardNumbering

places = st.integers(1, 50).flatmap(lambda step: st.tuples(st.integers(1, step), st.just(step)))


def test_the_ids_of_the_source():
    """DB1 of three gives 1, 4, 7, 10, 13 and DB2 gives 2, 5, 8, 11, 14."""
    for offset, expected in ((1, [1, 4, 7, 10, 13]), (2, [2, 5, 8, 11, 14])):
        numbering, drawn = ShardNumbering(offset, 3), [0]
        while len(drawn) < 6:
            drawn.append(numbering.following(drawn[-1]))
        assert drawn[1:] == expected


@given(places, st.integers(0, 10**18), st.integers(1, 10**18))
def test_the_following_id_is_the_least_that_is_ones_own(place, value, floor):
    numbering = ShardNumbering(*place, floor)
    found = numbering.following(value)

    assert found > value
    assert found >= floor
    assert found - max(value + 1, floor) < numbering.step
    assert numbering.judge(found, value)


def test_a_numbering_that_does_not_add_up_is_refused(subtests):
    for numbering, sentence in [
        (ShardNumbering(1, 0), "step must be 1 to 1000, got 0"),
        (ShardNumbering(1, -3), "step must be 1 to 1000, got -3"),
        (ShardNumbering(1, 1001), "step must be 1 to 1000, got 1001"),
        (ShardNumbering(0, 2), "offset must be 1 to 2, got 0"),
        (ShardNumbering(3, 2), "offset must be 1 to 2, got 3"),
        (ShardNumbering(1, 1, 0), "floor must be 1 to 9223372036854775807, got 0"),
        (ShardNumbering(1.0, 1), "offset must be 1 to 1, got 1.0"),  # type: ignore[arg-type]
    ]:
        with subtests.test(numbering=numbering), pytest.raises(ShardMisconfigured, match=sentence):
            numbering.checked()


def test_what_came_is_judged():
    numbering = ShardNumbering(2, 3, 100, 200)

    assert numbering.judge(101, 0)
    assert numbering.judge(197, 101)
    assert not numbering.judge(200, 197)
    for wrong in (102, 98):
        with pytest.raises(
            ShardMisconfigured, match=f"ticket {wrong} is not of this shard, which has offset 2, step 3 and floor 100"
        ):
            numbering.judge(wrong, 0)
    for seen in (101, 104):
        with pytest.raises(MaxValueWentBack, match=f"ticket 101 came after {seen}"):
            numbering.judge(101, seen)


@given(places, st.integers(0, 10**6), st.integers(1, 200))
def test_a_window_holds_as_many_ids_as_were_asked_for(place, before, size):
    residue = Residue(*place)
    found = residue.ids(before + size * residue.step, size)

    assert len(found) == size
    assert before < found[0] <= found[-1] <= before + size * residue.step
    assert {number % residue.step for number in found} == {residue.offset % residue.step}
    if size > 1:
        assert residue_of(found) == residue


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(1, 20)), max_size=30))
def test_the_windows_of_several_databases_have_no_id_in_common(step, claims):
    rows, ids = [0] * step, []
    for which, size in claims:
        rows[which % step] += size * step
        ids += Residue(which % step + 1, step).ids(rows[which % step], size)

    distinct(ids)


def test_a_residue_goes_on_above_what_it_gave_and_what_smaller_fleets_gave():
    seen = {ALL: 50, Residue(1, 2): 80, Residue(2, 2): 90, Residue(1, 3): 200}

    assert mark(seen, ALL) == 50
    assert mark(seen, Residue(1, 2)) == 80
    assert mark(seen, Residue(2, 3)) == 90
    assert mark(seen, Residue(1, 3)) == 200
    assert mark({}, ALL) == 0
