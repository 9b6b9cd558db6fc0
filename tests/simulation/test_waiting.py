"""Rows that wait for a number: every order of two callers, a writer and a change, and every death in between."""

from __future__ import annotations

import pytest

from simulation.violation import Violation
from simulation.waiting import Rules, all_of


def test_no_gap_no_duplicate_and_no_row_left_in_any_of_all_worlds():
    worlds = all_of(Rules())

    assert len(worlds.seen) > 500
    assert worlds.ended > 100


BROKEN = [
    ("have a gap", Rules(draws_before_the_commit=True)),
    ("came twice", Rules(locks_the_counter=False, locks_the_rows=False, counts_the_rows=False)),
    ("came twice", Rules(locks_the_counter=False, locks_the_rows=False, guards_the_rows=False)),
    ("came twice", Rules(leaves_the_counter=True)),
]


@pytest.mark.parametrize(("found", "broken"), BROKEN)
def test_a_broken_rule_shows_in_one_of_them(found: str, broken: Rules):
    with pytest.raises(Violation, match=found):
        all_of(broken, moves=False)


def test_a_row_numbered_as_it_was_before_its_lock_may_be_of_another_year():
    with pytest.raises(Violation, match="a number of another year"):
        all_of(Rules(locks_the_rows=False))
