"""Three Galera nodes under load: ids are unique and calls end in time, whatever happens to a node."""

from __future__ import annotations

import time

import pytest
from support.clusters.numbers import EACH, REFUSED, both_drew, under_contention
from support.clusters.writers import account, in_order, its_own, its_own_first, only, under_load, wait
from support.distinct import distinct

ISOLATED = 15
NOTICED = 9
"""Seconds after which an isolated node knows that it is, and refuses."""


@pytest.mark.parametrize(("name", "places"), [("one", only(0)), ("spread", its_own)], ids=["one", "spread"])
def test_writers_on_one_node_and_on_all(galera, writers, report, name, places):
    account(under_load(galera, writers, name, places, lambda: wait(5, name)), report)


@pytest.mark.parametrize(
    ("name", "places"), [("killed", its_own_first), ("all-wrote-there", in_order)], ids=["its own", "in order"]
)
def test_a_node_is_killed_and_comes_back(galera, writers, report, name, places):
    def trouble() -> None:
        galera.kill(0)
        wait(10, f"{name}: a node is away")
        galera.restart(0)

    account(under_load(galera, writers, name, places, trouble), report)


def test_a_node_is_isolated_and_refuses(galera, writers, report):
    healed: list[float] = []

    def trouble() -> None:
        writers.start("segment", "minority", [galera.url(2)])
        writers.wait_for_all()
        galera.isolate(2)
        began = time.monotonic()
        wait(ISOLATED, "isolated")
        assert writers.drawn("segment", "minority").after(began + NOTICED) == 0
        galera.heal(2)
        galera.wait_until_whole()
        healed.append(time.monotonic())

    found = under_load(galera, writers, "isolated", its_own_first, trouble)
    minority = writers.drawn("segment", "minority")
    account({**found, "segment of the minority": minority}, report)
    report(f"the minority said: {minority.words}")
    assert set(minority.errors) == {"DatabaseUnavailable"}
    assert minority.codes["1047"]
    assert minority.after(healed[0])


def test_of_two_members_that_drew_one_number_one_is_refused_at_commit(galera, report):
    drawn, code, again = both_drew(galera)
    report(f"numbers: both members drew {drawn[0]}; one COMMIT was refused with {code}, its retry drew {again}")

    assert drawn == [1, 1]
    assert code in REFUSED
    assert again == 2


def test_members_that_draw_in_one_scope_leave_no_gap_and_no_duplicate(galera, report):
    numbers, refused = under_contention(galera)
    report(f"numbers: {len(numbers)} by two members in one scope, refused {dict(refused)} times by code")

    assert distinct(numbers) == 2 * EACH
    assert numbers == list(range(1, 2 * EACH + 1))
    assert refused
