"""Three servers in Group Replication under load: ids are unique and calls end in time, whatever happens to one."""

from __future__ import annotations

import time

import pytest
from support.clusters.cluster import MEMBERS
from support.clusters.numbers import EACH, REFUSED, both_drew, under_contention
from support.clusters.writers import account, in_order, its_own, its_own_first, only, under_load, wait
from support.distinct import distinct

ISOLATED = 20
NOTICED = 6
"""Seconds after which an isolated member has brought no commit to its end."""

WITHOUT_TICKETS = {"segment": 3, "meteor": 1, "snowflake": 1}
"""Those of REPLACE belong to the server that began with them: on another one they wait for `allocator shards trust`."""


def test_one_primary(single_primary, writers, report):
    places = only(single_primary.primary())
    account(under_load(single_primary, writers, "one", places, lambda: wait(5, "one primary")), report)


def test_the_primary_is_killed_and_comes_back(single_primary, writers, report):
    def trouble() -> None:
        killed = single_primary.primary()
        single_primary.kill(killed)
        wait(15, "killed: the primary is away")
        single_primary.restart(killed)

    account(under_load(single_primary, writers, "killed", in_order, trouble, WITHOUT_TICKETS), report)


def test_the_primary_is_isolated_and_gives_nothing(single_primary, writers, report):
    def trouble() -> None:
        alone = single_primary.primary()
        writers.start("segment", "minority", [single_primary.url(alone)])
        writers.wait_for_all()
        single_primary.isolate(alone)
        began = time.monotonic()
        wait(ISOLATED, "isolated")
        assert writers.drawn("segment", "minority").after(began + NOTICED) == 0
        assert single_primary.primary() != alone
        single_primary.heal(alone)
        single_primary.wait_until_whole()

    found = under_load(single_primary, writers, "isolated", in_order, trouble, WITHOUT_TICKETS)
    minority = writers.drawn("segment", "minority")
    account({**found, "segment of the minority": minority}, report)
    report(f"the minority said: {minority.words}")
    assert set(minority.errors) == {"DatabaseUnavailable"}


@pytest.mark.parametrize(("name", "places"), [("one", only(0)), ("spread", its_own)], ids=["one", "spread"])
def test_several_primaries(multi_primary, writers, report, name, places):
    found = under_load(multi_primary, writers, name, places, lambda: wait(5, name))
    account(found, report)


def test_one_of_several_primaries_is_killed_and_comes_back(multi_primary, writers, report):
    def trouble() -> None:
        multi_primary.kill(0)
        wait(15, "killed: a primary is away")
        multi_primary.restart(0)

    found = under_load(multi_primary, writers, "killed", its_own_first, trouble)
    account(found, report)
    assert multi_primary.primaries == MEMBERS


def test_one_of_several_primaries_is_isolated(multi_primary, writers, report):
    def trouble() -> None:
        multi_primary.isolate(2)
        wait(ISOLATED, "isolated")
        multi_primary.heal(2)
        multi_primary.wait_until_whole()

    account(under_load(multi_primary, writers, "isolated", its_own_first, trouble, WITHOUT_TICKETS), report)


def test_of_two_members_that_drew_one_number_one_is_refused_at_commit(multi_primary, report):
    drawn, code, again = both_drew(multi_primary)
    report(f"numbers: both members drew {drawn[0]}; one COMMIT was refused with {code}, its retry drew {again}")

    assert drawn == [1, 1]
    assert code in REFUSED
    assert again == 2


def test_members_that_draw_in_one_scope_leave_no_gap_and_no_duplicate(multi_primary, report):
    numbers, refused = under_contention(multi_primary)
    report(f"numbers: {len(numbers)} by two members in one scope, refused {dict(refused)} times by code")

    assert distinct(numbers) == 2 * EACH
    assert numbers == list(range(1, 2 * EACH + 1))
    assert refused
