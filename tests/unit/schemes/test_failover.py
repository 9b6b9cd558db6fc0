"""Rule 8, without a database: where a row was written, where we are, and what follows."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from support.documents.pages import ROOT

from allocator import Tag
from allocator.errors import InvalidSetting, ServerReplaced
from allocator.schemes.failover import (
    AHEAD_MS,
    FLOOR,
    NODES_SKIPPED,
    PERIOD_MS,
    TICKETS_SKIPPED,
    Move,
    beginning,
    crossing,
    is_run,
    moved,
    repaired,
    skipped,
)
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import AUTO, REFUSE, gap_of

NOW = 1_800_000_000_000


def row(max_value: int = 1000, **changed) -> Tag:
    return Tag(**{"name": "order", "max_value": max_value, "claimed_at": NOW, **changed})


def skip(tag: Tag, seconds: float = 0) -> int:
    """What a tag skips that was claimed from last so long ago."""
    return crossing(tag, NOW + round(1000 * seconds))


# -- how far


GAPS = [
    *((row(given), 0, max(FLOOR, given)) for given in (0, 10, FLOOR - 1, FLOOR, FLOOR + 1, 10**7, 10**10)),
    pytest.param(row(residue=Residue(2, 3)), 0, 3 * FLOOR, id="of several shards: ids of its own"),
    pytest.param(row(max_step=10**8), 0, 4 * 10**8, id="more than a claim takes"),
    pytest.param(row(limit=2**31 - 1), 0, 2**22 - 1, id="a low limit has a lower floor"),
    pytest.param(row(limit=2**20, max_step=100), 0, 2**11, id="a lower one yet"),
    pytest.param(row(), -3600, FLOOR, id="a clock behind that of the server before is the same moment"),
]


@pytest.mark.parametrize(("tag", "seconds", "gap"), GAPS)
def test_a_gap_is_what_the_tag_ever_gave_and_the_floor_at_least(tag, seconds, gap):
    assert skip(tag, seconds) == gap


def test_close_to_its_limit_a_tag_skips_an_eighth_of_the_rest():
    tag = row(2**31 - 10**9, limit=2**31 - 1)
    for _ in range(30):
        gap = skip(tag)
        assert gap == (tag.limit - tag.max_value) // 8
        tag = replace(tag, max_value=tag.max_value + gap, skipped=tag.skipped + gap)
    tag = replace(tag, max_value=tag.limit - 8 * tag.max_step)
    assert skip(tag) == tag.max_step
    with pytest.raises(
        ServerReplaced,
        match="since only 7999999 ids are left below its limit, too few to skip. .*allocator tags repair order",
    ):
        skip(replace(tag, max_value=tag.max_value + 1))


@pytest.mark.parametrize("given", [1000, 10**8])
def test_two_servers_that_go_on_from_one_row_land_apart(given):
    """As when what was claimed after one failover is forgotten in another: the later one lands above."""
    moments = (0, 1, 2, 60, 600, 1023)
    for (earlier, later), (before, after) in zip(
        pairwise(moments), pairwise(skip(row(given), seconds) for seconds in moments), strict=True
    ):
        assert (after - before) / (later - earlier) >= max(FLOOR, given) // 1024
    assert skip(row(given), 1024) == skip(row(given))
    for first, second in [(-2, 3), (-600, 60)]:  # though the clock of the first was behind
        assert skip(row(given), second) > skip(row(given), first)


def test_a_gap_that_an_operator_fixed():
    fixed = row(10**9, failover_gap=500)
    assert skip(fixed) == 500
    assert skip(fixed, 512) == 750
    assert skip(replace(fixed, residue=Residue(2, 3))) == 1500
    assert skip(replace(fixed, failover_gap=0)) == 0
    assert skip(replace(fixed, limit=10**9 + 600), 512) == 500
    with pytest.raises(ServerReplaced, match="only 499 ids are left"):
        skip(replace(fixed, limit=10**9 + 499))


def test_a_tag_that_refuses_says_what_to_do():
    with pytest.raises(
        ServerReplaced, match=r"may lack ids above 1000; .*failover_gap is 'refuse'.*allocator tags repair order"
    ):
        skip(row(failover_gap=REFUSE))


# -- which run it is


@pytest.mark.parametrize(
    ("run", "row", "since", "is_same"),
    [
        ("A", "A", 0, True),
        ("A", "B", 0, False),
        ("A", "", 0, False),
        pytest.param("A-103", "A-100", 100, True, id="a start drifts upwards: the true one decides"),
        pytest.param("A-103", "A-104", 100, False, id="and never back"),
        pytest.param("A-103", "A-99", 100, False, id="an earlier start"),
        pytest.param("A-100", "B-100", 100, False, id="another server"),
        pytest.param("A-100", "A", 100, False, id="no longer durable"),
        pytest.param("A", "A-100", 100, False, id="durable again"),
        pytest.param("A-300", "A-100", 199, False, id="a server alone, up before a move that a fast clock dated"),
        pytest.param("X.", "X.", 300, True, id="a durable cluster, whichever member"),
        pytest.param("X.-150", "X.-100", 150, True, id="a member of a cluster that was up before the last move"),
        pytest.param("X.-300", "X.-100", 300, False, id="a cluster that was not durable, and began anew"),
        pytest.param("X.-150", "Y.-100", 150, False, id="another cluster"),
        *((run, "A-100", 100, False) for run in ("a", "A-", "A-x", "-", "A-1-2")),
    ],
)
def test_a_run_is_that_of_the_row(run, row, since, is_same):
    assert is_run(run, Move(row, at=200_000), since) == is_same


# -- settings, repair


def test_the_gap_of_a_tag(subtests):
    assert [gap_of(given) for given in ("auto", "refuse", 0, 500, None)] == ["auto", "refuse", 0, 500, "auto"]
    for given in [-1, 2**63, 1.5, True, "much", b"1"]:
        with subtests.test(given=given), pytest.raises(InvalidSetting, match="failover_gap must be"):
            gap_of(given)


def test_repair_goes_above_what_is_said_or_skips_the_usual_gap():
    usual = 1000 + FLOOR
    assert [repaired(row(failover_gap=gap), None, NOW) for gap in (AUTO, REFUSE, 0)] == [usual] * 3
    assert repaired(row(failover_gap=500), None, NOW) == 1500
    assert repaired(row(), 1000, NOW) == 1000
    assert repaired(row(residue=Residue(1, 2)), None, NOW) == 1000 + 2 * FLOOR
    with pytest.raises(InvalidSetting, match="above must be 1000 to .*, got 999 for tag 'order'"):
        repaired(row(), 999, NOW)
    with pytest.raises(InvalidSetting, match="only 400 ids left, too few to skip 500 of them.*--above N"):
        repaired(row(limit=1400, failover_gap=500), None, NOW)


# -- what else may be forgotten


def test_another_server_sets_the_time_of_the_move_and_the_beginning_of_new_tags():
    first = moved(Move("run", 1), ALL, "run2", 2, 0, 5)
    second = moved(first, ALL, "run3", 3, PERIOD_MS // 2, PERIOD_MS // 2)

    assert first == Move("run2", 2, FLOOR + 20, 5)
    assert second.first_value == first.first_value + FLOOR + FLOOR // 2
    assert second.at == PERIOD_MS // 2


def test_a_new_tag_begins_above_what_one_of_its_name_may_have_given():
    for begins, settings in [
        (3 * FLOOR, {}),
        (30 * FLOOR, {"max_step": 10 * FLOOR // 4}),
        (3 * 64, {"limit": 1 << 15, "max_step": 1}),
        (3 * 400, {"limit": 1 << 15, "max_step": 100}),
        (1 << 14, {"limit": 1 << 15, "max_step": 10_000}),
        (1 << 29, {"limit": 1 << 30, "max_value": 1 << 29}),
    ]:
        assert beginning(Tag("order", **settings), 3 * FLOOR, is_alone=True).max_value == begins, begins


def test_a_new_tag_of_several_shards_begins_above_what_another_may_have_given():
    """`first_value` may be an operator's word, of which nothing is left out."""
    low = Tag("order", limit=1 << 15)
    assert beginning(low, 1000, is_alone=False).max_value == 1000
    large = Tag("order", max_step=10 * FLOOR)
    assert {beginning(large, FLOOR, is_alone=alone).max_value for alone in (True, False)} == {40 * FLOOR}
    assert beginning(low, FLOOR, is_alone=False).max_value == low.limit


def test_the_time_of_a_move_is_the_later_of_two_clocks_and_the_server_bounds_that_of_a_process():
    day = 86_400_000
    counts = {0: day, day + 1: day + 1}
    counts |= dict.fromkeys((day + AHEAD_MS, day + AHEAD_MS + 1, 3650 * day), day + AHEAD_MS)

    assert {wall: moved(Move("run"), ALL, "run2", 2, day, wall).at for wall in counts} == counts


def test_two_moves_from_one_row_leave_room_for_a_node_and_a_hundred_tickets_a_second():
    for seconds in [5, 60, 1000]:
        first, second = skipped(NOW, ALL), skipped(NOW + 1000 * seconds, ALL)

        assert abs(second.nodes - first.nodes) >= min(seconds, 24), seconds
        assert abs(second.tickets - first.tickets) >= 100 * min(seconds, 24), seconds
        assert min(first.nodes, second.nodes) >= NODES_SKIPPED, seconds
        assert min(first.tickets, second.tickets) >= TICKETS_SKIPPED, seconds


# -- the table of `docs/failover.md` says what the rule computes


PAGE = (ROOT / "docs" / "failover.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| 10.*$", PAGE, re.MULTILINE)]
FAILOVERS = (0, 1, 10, 100)
UNITS = {"": 1, "million": 10**6, "billion": 10**9}


def numbers_of(cell: str) -> list[float]:
    """The numbers of a cell such as `4.19 to 8.39 million`."""
    numbers, unit = re.fullmatch(r"([\d,. to]*\d) ?(\w*)", cell).groups()
    return [float(number.replace(",", "")) * UNITS[unit] for number in numbers.split(" to ")]


def value_after(given: int, failovers: int, idle_ms: int) -> int:
    """Where a tag stands that gave so many ids and failed over so often, each time after so long without a claim."""
    tag = Tag("order", given, claimed_at=NOW)
    for _ in range(failovers):
        skip = crossing(tag, NOW + idle_ms)
        tag = replace(tag, max_value=tag.max_value + skip, skipped=tag.skipped + skip, claimed_at=NOW)
    return tag.max_value


def test_a_cell_of_the_table_is_what_the_rule_gives():
    assert [numbers_of(row[0]) for row in ROWS] == [[10], [10**4], [10**7], [10**10]]
    for given, *cells in ROWS:
        for failovers, cell in zip(FAILOVERS, cells, strict=True):
            said = numbers_of(cell)
            found = [value_after(int(*numbers_of(given)), failovers, idle) for idle in (0, PERIOD_MS - 1)]

            assert found == pytest.approx([said[0], said[-1]], rel=0.005), (given, cell)
