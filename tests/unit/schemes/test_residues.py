"""What was seen of the slots of a tag, and which numbers are a slot's own."""

from hypothesis import given
from hypothesis import strategies as st
from support.distinct import distinct

from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.residues import ALL, Residue, mark, residue_of

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
