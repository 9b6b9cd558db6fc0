"""Rows that wait for a number: every order of two callers, a writer and a change, and every death in between."""

from __future__ import annotations

import pytest

from simulation.violation import Violation
from simulation.waiting import Actor, Caller, Drawer, Mover, Rules, Together, all_of

CALLER, TOGETHER, MOVER, DRAWER = Caller("b"), Together("both"), Mover("mover", key=2), Drawer("drawer")


@pytest.mark.parametrize("others", [(CALLER, MOVER), (TOGETHER, MOVER), (TOGETHER, DRAWER)])
def test_no_gap_no_duplicate_and_no_row_left_in_any_of_all_worlds(others: tuple[Actor, ...]):
    worlds = all_of(Rules(), *others)

    assert len(worlds.seen) > 500
    assert worlds.ended > 100


BROKEN = [
    ("have a gap", Rules(draws_before_the_commit=True), CALLER),
    ("came twice", Rules(locks_the_counter=False, locks_the_rows=False, counts_the_rows=False), CALLER),
    ("came twice", Rules(locks_the_counter=False, locks_the_rows=False, guards_the_rows=False), CALLER),
    ("came twice", Rules(leaves_the_counter=True), CALLER),
    ("came twice", Rules(leaves_the_counter=True), TOGETHER),
    ("all wait for each other", Rules(waits_for_each_counter=True), TOGETHER),
]


@pytest.mark.parametrize(("found", "broken", "other"), BROKEN)
def test_a_broken_rule_shows_in_one_of_them(found: str, broken: Rules, other: Actor):
    with pytest.raises(Violation, match=found):
        all_of(broken, other, DRAWER)


def test_a_row_numbered_as_it_was_before_its_lock_may_be_of_another_year():
    with pytest.raises(Violation, match="a number of another year"):
        all_of(Rules(locks_the_rows=False), CALLER, MOVER)
