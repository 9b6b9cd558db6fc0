"""Rule 8, without a database: where a row was written, where we are, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator import InvalidSetting, ServerReplaced, Tag
from allocator.rules.failover import (
    LINE_FROM,
    REFUSE,
    Here,
    cross,
    margin_of,
    one_of_several,
    plain,
    public_margin,
    repaired,
)
from allocator.rules.node_failover import (
    LEASES_LEFT_OUT_MS,
    NODES_LEFT_OUT,
    Failover,
    begin_of_lease,
    moved,
    nodes_left_out,
)
from allocator.schemes.residues import Lane

ELSEWHERE = Here("old", "new", "new", same=False)


def row(**changed) -> Tag:
    return Tag(**{"name": "order", "max_value": 1000, "epoch": "old", "margin": 500, **changed})


def test_a_row_is_of_this_run_if_it_says_so_or_nothing():
    assert plain("run", "run").same
    assert plain("", "run").same
    assert not plain("other", "run").same


def test_on_another_run_the_margin_is_left_out_in_ids_of_the_lane():
    assert cross(row(), ELSEWHERE).skip == 500
    assert cross(row(lane=Lane(2, 3)), ELSEWHERE).skip == 1500
    assert cross(row(), plain("", "new")).skip == 0
    assert cross(row(margin=0), ELSEWHERE).skip == 0


def test_a_tag_that_refuses_says_what_to_do():
    with pytest.raises(ServerReplaced, match=r"ids above 1000 may be forgotten.*allocator tags repair order"):
        cross(row(margin=REFUSE), ELSEWHERE)


def test_a_margin_that_does_not_fit_below_the_limit_is_refused_and_not_cut():
    assert cross(row(limit=1500), ELSEWHERE).skip == 500
    with pytest.raises(ServerReplaced, match="fewer than its margin of 500 ids remain"):
        cross(row(limit=1499), ELSEWHERE)


def later(hours: float) -> Here:
    return ELSEWHERE._replace(at=LINE_FROM + round(hours * 3600))


def test_a_tag_that_keeps_to_its_margin_an_hour_goes_on_above_whatever_it_gave():
    assert cross(row(), later(10)).skip == 4000
    assert cross(row(max_value=4900), later(10)).skip == 500
    assert cross(row(lane=Lane(2, 3)), later(10)).skip == 14_000


def test_two_that_go_on_from_one_row_do_not_go_on_at_one_place():
    """As when what was claimed after one failover is lost in another."""
    first, second = (1000 + cross(row(), later(hours)).skip for hours in (10, 11))
    assert second - first == 500
    repair, again = (repaired(row(), None, later(hours)) for hours in (10, 11))
    assert again - repair == 500


def test_nor_do_they_within_the_hour_after_another_one():
    """On the line since the last time, which was kept: the margin alone would be the same for both."""
    kept = row(max_value=1000 + cross(row(), later(10)).skip)
    skips = [cross(kept, later(10 + minutes / 60)).skip for minutes in (5, 6, 30)]

    assert skips == [541, 550, 750]
    assert cross(replace(kept, limit=kept.max_value + 999), later(10.5)).skip == 500


def test_a_line_takes_an_eighth_of_the_ids_at_most():
    assert cross(row(limit=40_000), later(10)).skip == 4000
    assert cross(row(limit=39_999), later(10)).skip == 500


def test_a_clock_before_the_line_leaves_the_margin():
    assert cross(row(), later(-10)).skip == 500


def of_cluster(was: str, run: str, since: int = 100) -> Here:
    return one_of_several(was, run, since, several=True)


def test_servers_of_a_cluster_take_turns_without_a_margin():
    first = of_cluster("", "A-100")
    second = of_cluster(first.epoch, "B-100")
    again = of_cluster(second.epoch, "A-100")

    assert (first.same, second.same, again.same) == (True, False, True)
    assert set(again.epoch.split(",")) == {"A-100", "B-100"}


def test_a_server_of_a_cluster_that_was_restarted_is_new():
    both = of_cluster("A-100", "B-100").epoch
    back = of_cluster(both, "A-200", since=200)

    assert not back.same
    assert back.epoch == "B-100,A-200"


def test_a_cluster_keeps_the_newest_runs():
    epoch = ""
    for number in range(20):
        epoch = of_cluster(epoch, f"{number}-100").epoch

    assert epoch.split(",") == [f"{number}-100" for number in range(12, 20)]


def test_a_server_alone_forgets_the_others():
    assert one_of_several("A-100,B-100", "B-100", 100, several=False) == Here("A-100,B-100", "B", "B-100", same=True)
    assert not one_of_several("A-100", "B-100", 100, several=False).same


def test_a_start_that_is_told_too_late_is_still_this_run():
    """It is told by a counter that carries into it, and never goes back; the true start decides."""
    assert one_of_several("A-100", "A-103", 100, several=False).same
    assert not one_of_several("A-104", "A-103", 100, several=False).same
    assert not one_of_several("A-99", "A-103", 100, several=False).same


@pytest.mark.parametrize("was", ["A", "A-", "A-x", "-", ",", "A-1-2"])
def test_an_epoch_that_was_written_by_hand_is_another_one(was):
    assert not one_of_several(was, "A-100", 100, several=False).same or was == ","


def test_the_usual_margin_is_a_thousand_of_the_greatest_claims_and_a_billion_at_least():
    assert margin_of(None, 10) == 10**9
    assert margin_of(None, 100_000_000) == 10**11
    assert margin_of("refuse", 10) == REFUSE
    assert public_margin(margin_of("refuse", 10)) == "refuse"


def test_a_low_limit_has_room_for_several_and_never_less_than_the_greatest_claim():
    assert margin_of(None, 1000, 2**31 - 1) == 21_474_836
    assert margin_of(None, 1000, 5000) == 1000
    assert margin_of(None, 1000, 2**53 - 1) == 10**9


@pytest.mark.parametrize("given", [-1, 2**63, 1.5, True, "much", b"1"])
def test_a_margin_that_is_none_is_refused(given):
    with pytest.raises(InvalidSetting, match="margin must be"):
        margin_of(given, 10)


def test_repair_goes_above_what_is_said_or_leaves_the_margin_out_again():
    assert repaired(row(), None, ELSEWHERE) == 1500
    assert repaired(row(margin=REFUSE), None, ELSEWHERE) == repaired(row(margin=0), None, ELSEWHERE) == 1000 + 10**9
    assert repaired(row(), 1000, ELSEWHERE) == 1000
    assert repaired(row(lane=Lane(1, 2)), None, ELSEWHERE) == 2000
    with pytest.raises(InvalidSetting, match="above must be 1000 to .*, got 999 for tag 'order'"):
        repaired(row(), 999, ELSEWHERE)
    with pytest.raises(InvalidSetting, match="400 ids left, fewer than the 500.*--above N"):
        repaired(row(limit=1400), None, ELSEWHERE)


def test_a_restart_sets_leases_off_and_another_server_the_beginning_of_tags_too():
    before = Failover("server", "run")
    restarted = moved(before, "server", plain("run", "run2"), 5)
    replaced = moved(restarted, "server2", plain("run2", "run3"), 7)

    assert moved(before, "server", plain("run", "run"), 5) == before
    assert restarted == Failover("server", "run2", 0, 5 + LEASES_LEFT_OUT_MS, LEASES_LEFT_OUT_MS)
    assert replaced == Failover("server2", "run3", 10**9, 7 + 2 * LEASES_LEFT_OUT_MS, 2 * LEASES_LEFT_OUT_MS)
    assert moved(replaced, "server3", plain("run3", "run4"), 0).first_value == 2 * 10**9


def test_a_lease_begins_behind_every_one_that_may_be_forgotten():
    hour = 3_600_000
    state = Failover("server", "run", 0, 5000 + LEASES_LEFT_OUT_MS)

    assert begin_of_lease(Failover("server", "run"), 5000, 5000 + hour) == 5000
    assert begin_of_lease(state, 5000, 65_000) == 5000 + LEASES_LEFT_OUT_MS
    assert begin_of_lease(state, 5000, 5000 + hour) == 5000 + 5 * hour
    assert begin_of_lease(state, 10**7, 10**7 + 60_000) == 10**7


def test_leases_begin_behind_those_that_were_leased_since_the_move_before_and_may_be_forgotten_too():
    first = moved(Failover("server", "run"), "server", plain("run", "run2"), 1_000)
    until = first.leases_from_ms + 60_000
    at_once = moved(first, "server", plain("run2", "run3"), 1_001)
    much_later = moved(first, "server", plain("run2", "run3"), 10**9, leased_until_ms=10**9 + until)

    assert at_once.leases_from_ms > until
    assert much_later.leases_from_ms == 10**9 + until + LEASES_LEFT_OUT_MS


def test_leases_begin_behind_those_of_processes_that_an_earlier_move_has_set_ahead():
    """An old backup knows of none of them: they began five minutes ahead, and are renewed from there."""
    first = moved(Failover("server", "run"), "server", plain("run", "run2"), 1_000)
    day = 86_400_000
    forgotten = day + LEASES_LEFT_OUT_MS + 60_000

    assert moved(first, "server", plain("run2", "run3"), day).leases_from_ms > forgotten


@pytest.mark.parametrize("seconds", [5, 60, 1000])
def test_two_moves_from_one_row_leave_room_for_a_node_a_second(seconds):
    now = 1_795_290_000
    assert abs(nodes_left_out(now + seconds) - nodes_left_out(now)) >= min(seconds, 24)
    assert nodes_left_out(now) >= NODES_LEFT_OUT
