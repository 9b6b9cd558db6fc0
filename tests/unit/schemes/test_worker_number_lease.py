"""The lease rule, by plain numbers: who may take a number, and how long its holder may use it."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from allocator.errors import DatabaseUnavailable, InvalidSetting, InvalidTag, LeaseLost, NodeIdsExhausted
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.worker_number_lease import (
    SNOWFLAKE,
    Clocks,
    NumberClaim,
    NumberLease,
    NumberRow,
    Renewal,
    Tenure,
    check_alike,
    check_clock,
    check_moved,
    choose,
    length_of,
    spaces_of,
    together,
)

L = 10_000
AT = 1_800_000_000_000
CLAIM = NumberClaim("billing", 2, L, AT, "me", "here", 7)
LEASE = NumberLease("billing", 0, "them", L)
HELD = NumberRow(0, 2, L, "them", 3, AT + L, AT + L, "there", 5)


def chosen(*rows: NumberRow, claim: NumberClaim = CLAIM, at: int = AT, spread=1, pick=0) -> int:
    found = choose(rows, claim, ALL, at, spread, pick)
    return found if isinstance(found, int) else found.number


def test_the_smallest_number_that_nobody_holds_comes_first_and_later_attempts_spread():
    """But a space begins with one number: two processes that begin it with different settings would take two."""
    for rows, spread, numbers in [
        ([], 1, {0}),
        ([], 64, {0}),
        ([HELD], 1, {1}),
        ([HELD, replace(HELD, number=2)], 1, {1}),
        ([HELD], 2, {1, 2}),
        ([HELD], 64, {1, 2, 3}),
    ]:
        assert {chosen(*rows, spread=spread, pick=pick) for pick in range(8)} == numbers, (rows, spread)


FULL = [replace(HELD, number=one) for one in (1, 2, 3)]


BACK = replace(HELD, holder="", used_until_ms=AT)
"""Given back: taken at once, but never in a second that its holder may have used, since some generators count seconds
and begin with the first id of one."""
ENDED = replace(HELD, used_until_ms=AT)
"""Over a length after its end, and where only the database says so, not yet: its clock may have been set forward."""
TAKEN = [
    *((HELD, later, 9 * L, False) for later in (1, L, 2 * L)),
    (HELD, 2 * L + 1, 9 * L, True),
    (ENDED, 9 * L, L, False),
    (ENDED, 9 * L, L + 1000, True),
    (replace(BACK, used_until_ms=AT - 1), 0, 0, True),
    *((BACK, 0, later, False) for later in (0, 1, 999)),
    (BACK, 0, 1000, True),
]
"""A row, the clock of the database and that of the process, and whether the number may be taken."""


def test_when_the_number_of_another_may_be_taken(subtests):
    for row, at, wall, is_free in TAKEN:
        with subtests.test(row=row, at=at, wall=wall), nullcontext() if is_free else pytest.raises(NodeIdsExhausted):
            assert chosen(row, *FULL, at=AT + at, claim=replace(CLAIM, wall_ms=AT + wall)) == 0


NONE_FREE = [
    ([HELD, *FULL], 0, r"^all 4 .* 'billing' are held, by there \(process 5\); unless .* the next is free in 21 s$"),
    (
        [replace(BACK, used_until_ms=AT + 1), *FULL],
        0,
        r"^no .* is free: 3 are held, by there \(process 5\); 1 given back a moment ago; the next is free in 1 s$",
    ),
    (
        [replace(row, holder="", used_until_ms=AT - 1) for row in (HELD, *FULL)],
        -9 * L,
        "4 given back a moment ago; .* free in 90 s; the clock of .* is 90 s behind",
    ),
]


def test_when_none_is_free_it_says_by_whom_and_until_when():
    for rows, wall, sentence in NONE_FREE:
        with pytest.raises(NodeIdsExhausted, match=sentence):
            chosen(*rows, claim=replace(CLAIM, wall_ms=AT + wall))


# -- settings and clocks


def test_a_space_that_is_held_with_another_width_is_refused():
    other = replace(CLAIM, bits=3)
    with pytest.raises(InvalidSetting, match=r"space 'billing' is leased with bits=2, by there .* asks for bits=3"):
        check_alike([HELD], other, AT)
    with pytest.raises(InvalidSetting, match="bits=2, by a client that named no host, but"):
        check_alike([replace(HELD, host="", process=0)], other, AT)

    check_alike([replace(HELD, holder="")], other, AT)


def test_a_space_keeps_the_length_and_format_of_its_first_lease_for_ever(subtests):
    """The rows say how long a failover stops leases; and ids of two formats repeat each other."""
    kept = replace(HELD, format="1/41/5/5/12 0", holder="")
    like = replace(CLAIM, format=kept.format)
    check_alike([kept], like, AT + 99 * L)
    for other, said in [
        ({"length_ms": L + 1000}, "leases of 10 s and the format 1/41/5/5/12 0, but this .* asks for leases of 11 s"),
        ({"format": "1/41/10/12 0"}, "but this process asks for leases of 10 s and the format 1/41/10/12 0; all"),
        ({"format": ""}, "but this process asks for leases of 10 s; all .* from allocator_lease$"),
    ]:
        with subtests.test(other=other), pytest.raises(InvalidSetting, match=said):
            check_alike([kept], replace(like, **other), AT + 99 * L)


def test_settings_that_are_none_are_refused(subtests):
    assert CLAIM.checked() == CLAIM
    wrong: list[dict[str, object]] = [{"space": ""}, {"space": "a b"}, {"length_ms": 999}]
    wrong += [{"bits": bits} for bits in (0, 32, "10")]
    for one in wrong:
        with subtests.test(wrong=one), pytest.raises(InvalidTag if "space" in one else InvalidSetting):
            replace(CLAIM, **one).checked()
    assert length_of(60) == 60_000
    for seconds in [0.5, 601, float("nan"), "60", True, None]:
        with subtests.test(seconds=seconds), pytest.raises(InvalidSetting, match="seconds must be"):
            length_of(seconds)


def test_a_clock_more_than_half_a_length_ahead_is_refused():
    check_clock(CLAIM, AT - L // 2)
    check_clock(CLAIM, AT + 100 * L)
    with pytest.raises(InvalidSetting, match=r"is 5.0 s ahead of the database's, and may be 5"):
        check_clock(CLAIM, AT - L // 2 - 1)


LONG = 90_000
WAITS = [
    (replace(CLAIM, length_ms=LONG), 3 * LONG),
    (CLAIM, 180_000),
    (replace(CLAIM, space=SNOWFLAKE), 60_000),
    (replace(CLAIM, space=SNOWFLAKE, length_ms=LONG), 3 * LONG),
]
"""Three lengths, and at least three of the usual one: a failover may have forgotten all rows."""


@pytest.mark.parametrize(("claim", "wait"), WAITS)
def test_after_a_failover_nobody_takes_a_number_for_three_lengths(claim, wait, subtests):
    for at, wall in [(wait, 9 * wait), (9 * wait, wait + 1000), (0, 0)]:
        with (
            subtests.test(at=at),
            pytest.raises(DatabaseUnavailable, match="numbers are leased again in [0-9]+ s, and renewed meanwhile"),
        ):
            check_moved(AT, replace(claim, wall_ms=AT + wall), AT + at)
    check_moved(AT, replace(claim, wall_ms=AT + wait + 1001), AT + wait + 1)
    check_moved(0, claim, AT)


# -- the holder


def clocks(own: float, wall: float | None = None) -> Clocks:
    return Clocks(own, AT + int(1000 * (own if wall is None else wall)))


@pytest.fixture
def held() -> Tenure:
    return Tenure(L, clocks(0))


def test_the_end_counts_from_the_request(held):
    held.renewed(clocks(4), clocks(8))

    assert held.left(clocks(8)) == 6.0
    assert held.left(clocks(14)) == 0.0
    assert held.lost


def test_it_is_lost_by_an_answer_that_came_after_its_end_or_says_so():
    late, refused = Tenure(L, clocks(0)), Tenure(L, clocks(0))
    late.renewed(clocks(9), clocks(11))
    refused.failed(LeaseLost())

    assert late.lost
    assert refused.lost
    assert refused.want(clocks(1)) is None


@pytest.mark.parametrize("now", [clocks(10, 0), clocks(0, 10), clocks(1, -0.001)])
def test_either_clock_ends_it_and_what_is_lost_stays_lost(now, held):
    asked = Tenure(L, clocks(0))

    assert held.left(clocks(1)) == 9.0
    assert held.left(now) <= 0
    assert held.lost
    assert asked.want(now) is asked.want(clocks(4)) is None
    held.renewed(clocks(1), clocks(2))
    assert held.left(clocks(2)) <= 0


def test_it_knows_the_last_millisecond_in_which_it_was_used(held):
    for now in (clocks(2), clocks(3, 7), clocks(4, 5), clocks(5, 99)):
        held.left(now)

    assert held.used_ms == AT + 8000  # ids may have been made before the clock stepped back


def wait(held: Tenure, now: Clocks) -> float:
    step = held.want(now)
    assert isinstance(step, Wait)
    return step.seconds


def test_a_holder_waits_renews_and_waits_again_but_no_longer_than_its_lease(held):
    assert wait(held, clocks(1)) == pytest.approx(10 / 3 - 1)
    assert held.want(clocks(3.4)) == Renewal(clocks(3.4))
    held.renewed(clocks(3.4), clocks(3.5))
    assert wait(held, clocks(3.5)) == pytest.approx(10 / 3 - 0.1)
    held.want(clocks(13.3))
    assert wait(held, clocks(13.35)) == pytest.approx(0.05)


def test_a_renewal_that_failed_is_repeated_a_twelfth_of_the_length_or_a_second_after_it_began():
    for length, pause in [(L, 10 / 12), (60_000, 1.0)]:
        held, due = Tenure(length, clocks(0)), length / 3000 + 0.1
        assert held.want(clocks(due)) == Renewal(clocks(due)), length
        held.failed(DatabaseUnavailable("away"))

        assert wait(held, clocks(due + 0.5)) == pytest.approx(pause - 0.5), length
        assert held.want(clocks(due + pause + 0.1)) == Renewal(clocks(due + pause + 0.1)), length


def test_a_lease_whose_answer_came_after_its_end_is_not_used(held):
    held.check_answered(clocks(9.9))
    with pytest.raises(DatabaseUnavailable, match=r"the lease of 10 s had ended when the answer came"):
        held.check_answered(clocks(10))


# -- who holds which worker number, and how many are free


def test_held_is_what_nobody_else_may_take_yet_and_the_settings_are_those_of_the_newest_lease():
    until = {0: AT + L, 1: AT - L, 2: AT - L - 1}
    rows = [replace(HELD, number=number, until_ms=end) for number, end in until.items()]
    (space,) = spaces_of({"pods": [*rows, replace(HELD, number=3, holder="")]}, ALL, AT)
    assert (space.name, space.bits, space.length_ms, space.free) == ("pods", 2, L, 2)
    assert [row.number for row in space.held] == [0, 1]

    (space,) = spaces_of({"pods": [HELD, replace(HELD, number=9, bits=4, until_ms=AT + 1)]}, ALL, AT)
    assert (space.bits, space.free) == (2, 3)


def test_of_a_slot_only_its_own_numbers_are_free_and_the_slots_add_up():
    spaces = [space for slot in (1, 2) for space in spaces_of({"pods": [HELD]}, Residue(slot, 2), AT)]
    assert [space.free for space in spaces] == [1, 2]
    (all_of,) = together(spaces)
    assert (all_of.free, len(all_of.held)) == (3, 2)

    assert choose([], CLAIM, Residue(2, 4), AT, 1, 0) == 1
    with pytest.raises(InvalidSetting, match="has 2 numbers, and slot 3 of 4 none of them; lease at least 2 bits"):
        choose([], replace(CLAIM, bits=1), Residue(3, 4), AT, 1, 0)
