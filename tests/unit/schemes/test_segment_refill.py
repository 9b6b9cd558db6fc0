"""The pure core: plain calls, plain numbers, no clock."""

import pytest
from support.rules import rule

from allocator.errors import DatabaseUnavailable, Exhausted, MaxValueWentBack, UnknownTag
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.residues import ALL, Residue, mark
from allocator.schemes.shared.retry_pace import Wait


def started(step: int = 1000, max_step: int = 1_000_000, runway: float = 60.0) -> Segments:
    """A core whose first segment was just committed."""
    core = Segments(runway)
    core.configure(step, max_step)
    core.committed(wanted(core, 0.0), range(1, step + 1), 0.0)
    return core


def wanted(core: Segments, now: float) -> Claim:
    want = core.want(now)
    assert isinstance(want, Claim)
    return want


def low(step: int = 1000, max_step: int = 1_000_000, runway: float = 60.0) -> Segments:
    """One of whose first segment half is left, so that the next is claimed."""
    core = started(step, max_step, runway)
    core.take(), core.take()
    return core


def first_above(core: Segments, last: int) -> range:
    """The first piece of the segment after that of this id."""
    while (piece := core.take())[0] <= last:
        pass
    return piece


def drain(core: Segments) -> list[int]:
    ids: list[int] = []
    while piece := core.take():
        ids += piece
    return ids


def after(core: Segments, size: int) -> range:
    """What the database does: the next range above what was seen."""
    low = mark(core.seen, ALL)
    return range(low + 1, low + size + 1)


def commit(core: Segments, now: float) -> Claim:
    claim = wanted(core, now)
    core.committed(claim, after(core, claim.size), now)
    return claim


@rule(2)
def test_nothing_is_served_before_a_commit():
    core = Segments()
    assert not core.take()
    claim = wanted(core, 0.0)
    assert not core.take()
    assert core.want(1.0) is None, "only one claim is under way"
    core.committed(claim, range(1, 11), 0.0)

    assert list(range(1, 11)) == drain(core)


def test_the_first_claim_has_the_size_of_the_step_and_a_block_for_a_client_what_it_asks_for():
    """Within the bounds of the tag."""
    core = Segments()
    claim = wanted(core, 0.0)
    core.configure(250, 5000)

    assert claim.size == 250
    assert [core.block_size(asked) for asked in (1, 500, 5001)] == [1, 500, 5000]


def test_the_next_segment_is_claimed_once_under_half_of_the_step_is_left():
    core = started(1000)
    assert range(1, 501) == core.take()
    assert core.want(1.0) is None
    core.take()
    commit(core, 1.0)
    assert core.want(2.0) is None, "a second segment is enough"

    core = started(1)
    assert range(1, 2) == core.take()
    assert isinstance(core.want(1.0), Claim)
    core = started(10)
    assert len(core.take()) >= 3
    assert core.want(0.0) is None, "a process that draws a few ids claims ten"


def test_at_a_steady_rate_the_next_segment_is_claimed_as_this_one_begins():
    core = low(10)
    assert commit(core, 6.0).size == 50  # 5 ids in 6 seconds
    first_above(core, 10)

    assert wanted(core, 12.0).size == 50


def test_after_rare_traffic_the_next_segment_is_claimed_once_this_one_lasts_less_than_the_runway():
    core = low(100)
    commit(core, 37.5)  # 50 ids: 4 in 3 seconds, and 80 in a minute

    assert len(first_above(core, 100)) == 20
    assert core.want(50.0) is None


def test_pieces_cover_the_segment_in_order_without_a_gap():
    for size in (1, 2, 9, 10, 11, 99, 100, 101, 1000, 12_345):
        assert list(range(1, size + 1)) == drain(started(size))
    core = Segments()
    core.committed(wanted(core, 0.0), range(2, 302, 3), 0.0)
    assert list(range(2, 302, 3)) == drain(core)
    assert core.seen == {Residue(2, 3): 299}


@pytest.mark.parametrize(
    ("settings", "now", "size"),
    [
        pytest.param({"runway": 60.0}, 50.0, 1000, id="500 ids in 50 s last a runway"),
        pytest.param({"runway": 300.0}, 50.0, 3000, id="a longer one"),
        pytest.param({}, 0.000_1, 5000, id="at most ten times what was used"),
        pytest.param({}, 0.0, 5000, id="a clock that ticks rarely"),
        pytest.param({"step": 10, "runway": 0.0}, 0.0, 10, id="no runway, and a clock that stands still"),
        pytest.param({"max_step": 1500}, 0.000_1, 1500, id="never more than max_step"),
    ],
)
def test_a_claim_lasts_the_runway_at_the_rate_seen(settings, now, size):
    assert wanted(low(**settings), now).size == size


@pytest.mark.parametrize(
    ("seconds", "is_used_up", "size"),
    [(0.3, True, 500), (0.01, True, 50), pytest.param(0.3, False, 50, id="some of the first segment are left")],
)
def test_where_ids_do_not_outlast_a_slow_claim_the_next_is_a_hundred_times_what_was_used(seconds, is_used_up, size):
    core = low(10)
    claim = wanted(core, 0.001)
    if is_used_up:
        drain(core)
    core.committed(claim, after(core, claim.size), 0.001 + seconds)
    first_above(core, 10)

    assert wanted(core, 0.001 + seconds).size == size


def test_a_claim_is_enough_for_the_call_that_waits_for_it():
    for step, max_step, missing, size in [(10, 5000, 1000, 1000), (10, 500, 1000, 500), (10, 10, 1000, 10)]:
        core = Segments()
        first = core.want(0.0, missing)
        core.configure(step, max_step)
        assert first.size == size, (step, max_step)
        core.committed(first, range(1, size + 1), 0.0)
        drain(core)

        assert core.want(1e9, missing).size == size, (step, max_step)


def test_a_claim_does_not_count_what_is_in_memory():
    assert low(10).want(1e9, 100).size == 95


def test_a_claim_shrinks_when_traffic_falls():
    core = low(1000)
    assert commit(core, 0.001).size == 5000
    drain(core)

    assert wanted(core, 10_000.0).size == 1000


def consume(core: Segments, rate: float, seconds: float, begin: float = 0.0) -> list[tuple[int, bool]]:
    """What is held, and whether more is claimed, as ids are taken at a rate from a database that answers at once."""
    now, seen = begin, []
    while now < begin + seconds:
        piece = core.take()
        want, held = core.want(now), core.held
        if is_claimed := isinstance(want, Claim):
            core.committed(want, after(core, want.size), now)
        seen.append((held, is_claimed))
        now += len(piece) / rate
    return seen


def test_at_a_steady_rate_memory_lasts_the_runway_for_a_claim_a_minute_or_ten_ids():
    for rate in (0.1, 1, 10, 20, 200, 5000, 15_000):
        core = started(10, runway=60.0)
        consume(core, rate, seconds=200)
        seen = consume(core, rate, seconds=600, begin=200)

        assert min(held for held, _ in seen) >= 59 * rate - 1, rate
        assert sum(is_claimed for _, is_claimed in seen) <= 11, rate


def test_a_loop_from_a_standing_start_makes_ten_claims():
    core, claims, drawn = started(10), 1, 0
    while drawn < 100_000:
        drawn += len(core.take())
        if isinstance(want := core.want(0.0), Claim):
            core.committed(want, after(core, want.size), 0.0)
            claims += 1

    assert claims <= 12


BUSY = DatabaseUnavailable("a proxy is busy")
BUSY.retry_after = 5.0


@pytest.mark.parametrize(
    ("error", "failed_at", "again_at"),
    [
        pytest.param(DatabaseUnavailable("away"), 10.5, 11.0, id="a second after it began"),
        pytest.param(DatabaseUnavailable("did not answer"), 15.0, 15.0, id="at once if it hung"),
        pytest.param(BUSY, 10.5, 15.5, id="after as long as a service asked"),
        pytest.param(UnknownTag("x"), 10.0, 10.0, id="at once where the tag may be made meanwhile"),
    ],
)
def test_when_a_failed_claim_is_tried_again(error, failed_at, again_at):
    core = Segments()
    core.failed(wanted(core, 10.0), error, failed_at)
    if failed_at < again_at:
        want = core.want(again_at - 0.1)
        assert isinstance(want, Wait)
        assert (want.seconds, str(want.error)) == (pytest.approx(0.1), str(error))

    assert isinstance(core.want(again_at), Claim)


def test_the_size_of_a_claim_survives_an_outage():
    core = low(1000)
    claim = wanted(core, 0.001)
    core.failed(claim, DatabaseUnavailable("away"), 0.002)

    assert claim.size == wanted(core, 500.0).size


@rule(1)
def test_the_range_of_a_claim_that_failed_is_burnt():
    core = Segments()
    late = wanted(core, 0.0)
    core.failed(late, DatabaseUnavailable("no answer"), 5.0)
    core.committed(late, range(1, 11), 5.1)

    assert not core.take()
    assert not core.seen


@rule(1)
def test_a_claim_that_never_ends_is_given_up_and_its_range_burnt():
    core = Segments(lost_after=60.0)
    lost = wanted(core, 0.0)
    assert core.want(59.0) is None
    second = wanted(core, 61.0)
    core.committed(lost, range(1, 11), 61.0)
    assert not core.take()
    core.committed(second, range(11, 21), 61.0)

    assert range(11, 16) == core.take()


def test_a_claim_says_what_was_seen_and_a_range_claimed_before_a_reservation_is_no_step_back():
    core = low(1000)
    core.record_seen(ALL, 6000)  # reserved meanwhile
    claim = wanted(core, 1.0)
    assert claim.seen == {ALL: 6000}
    core.record_seen(ALL, 22_000)
    core.committed(claim, range(6001, 16_001), 1.0)

    assert core.stopped is None


@rule(7)
def test_a_range_at_or_below_what_was_seen_stops_the_tag():
    core = low(1000)
    core.committed(wanted(core, 1.0), range(1000, 2000), 1.0)

    assert isinstance(core.stopped, MaxValueWentBack)
    assert not core.take()
    assert core.want(1000.0) is None


def test_after_the_limit_memory_is_served_and_then_the_reason_is_given():
    core = low(1000)
    core.failed(wanted(core, 1.0), Exhausted("all gone"), 1.0)

    assert list(range(506, 1001)) == drain(core)
    want = core.want(1.5)
    assert isinstance(want, Wait)
    assert isinstance(want.error, Exhausted)
    assert isinstance(core.want(2.5), Claim)  # the limit may have been raised
