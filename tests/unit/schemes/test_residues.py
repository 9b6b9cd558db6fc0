"""What was seen of the shards of a tag, as its fleet grows."""

from hypothesis import given
from hypothesis import strategies as st

from allocator.schemes.shared.residues import Residue, is_outgrown, mark, without_the_outgrown

residues = st.integers(1, 5).flatmap(lambda step: st.builds(Residue, st.integers(1, step), st.just(step)))
seen_ids = st.dictionaries(residues, st.integers(1, 10**6), min_size=1, max_size=12)


@given(seen_ids)
def test_fewer_residues_say_the_same_of_every_residue_that_may_still_be_claimed_from(seen):
    fewer = without_the_outgrown(dict(seen))
    largest = max(residue.step for residue in seen)

    assert len([residue for residue in fewer if residue.step < largest]) <= 1
    for step in range(1, 7):
        for residue in (Residue(offset, step) for offset in range(1, step + 1)):
            assert is_outgrown(residue, fewer) == is_outgrown(residue, seen)
            if not is_outgrown(residue, seen):
                assert mark(fewer, residue) == mark(seen, residue)


def test_a_fleet_that_grows_a_hundred_times_is_told_in_a_few_residues():
    seen: dict[Residue, int] = {}
    for step in range(1, 101):
        seen[Residue(1, step)] = 1000 * step
        seen = without_the_outgrown(seen)

    assert seen == {Residue(1, 99): 99_000, Residue(1, 100): 100_000}


def test_a_window_holds_the_ids_of_the_remainder_and_no_others():
    for step in range(1, 6):
        for offset in range(1, step + 1):
            for last in range(4 * step, 6 * step):
                window = range(last - 4 * step + 1, last + 1)

                assert list(Residue(offset, step).ids(last, 4)) == [one for one in window if (one - offset) % step == 0]


def test_a_residue_goes_on_above_all_that_a_smaller_fleet_gave():
    seen = {Residue(1, 2): 70, Residue(2, 2): 90, Residue(1, 3): 30, Residue(2, 3): 500}

    assert mark(seen, Residue(1, 3)) == 90
    assert mark(seen, Residue(2, 3)) == 500
