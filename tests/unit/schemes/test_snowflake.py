"""Snowflake: alone, and under leases; every clock is an argument."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest
from support.distinct import distinct
from support.memory.wall_clock import NOW, Clock
from support.processes.threads import draw_on_threads

from allocator import Layout, Snowflake
from allocator.errors import (
    ClockWentBack,
    DatabaseUnavailable,
    Exhausted,
    InvalidSetting,
    LeaseLost,
    NodeIdsExhausted,
    NotCopyable,
)
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.snowflake import (
    EPOCH,
    SNOWFLAKE,
    Lease,
    LeaseClaim,
    LeasedSnowflake,
    SnowflakeBlocks,
    SnowflakeWorker,
    choose_worker,
)


def alone(clock: Clock, **settings) -> Snowflake:
    return Snowflake(1, 2, clock=clock, sleep=clock.sleep, **settings)


def test_an_id_holds_its_fields():
    fields = SNOWFLAKE.unpack(alone(Clock()).next_id())

    # The millisecond after the start: another of this worker may have used that one.
    assert fields == {"timestamp": int(NOW * 1000) + 1 - EPOCH, "datacenter": 1, "worker": 2, "sequence": 0}


def test_after_4096_ids_the_next_millisecond_is_waited_for():
    clock = Clock()
    ids = alone(clock)
    drawn = [ids.next_id() for _ in range(10_000)]

    assert distinct(drawn)
    assert sorted(drawn) == drawn
    assert clock.now - NOW == pytest.approx(0.003, abs=1e-4)


def test_a_clock_that_goes_back_is_refused_until_it_has_caught_up():
    clock = Clock()
    ids = alone(clock)
    first = ids.next_id()
    clock.now -= 3.0
    with pytest.raises(ClockWentBack, match="the clock went back by 3000 ms, to 2026-09-21 14:13:17"):
        ids.next_id()
    clock.now += 3.002

    assert ids.next_id() > first


def test_when_a_tick_is_drawn_waited_for_or_refused():
    blocks = SnowflakeBlocks(33, Format(SNOWFLAKE, EPOCH))

    assert len(blocks.draw(NOW, waits=False)) == 4096
    assert blocks.draw(NOW + 0.0004, waits=False) == Wait(pytest.approx(0.0006, abs=1e-6))
    assert blocks.draw(NOW - 3, waits=True) == Wait(3.0)
    with pytest.raises(ClockWentBack):
        blocks.draw(NOW - 3, waits=False)
    assert len(blocks.draw(NOW + 1, waits=False)) == 4096


def test_or_waited_for():
    clock = Clock()
    ids = alone(clock, on_clock_back="wait")
    first = ids.next_id()
    clock.now -= 3.0

    assert ids.next_id() > first
    assert clock.now >= NOW


def test_a_clock_stepped_by_an_hour_every_100_ms_repeats_nothing():
    clock, rnd, drawn = Clock(), random.Random(1), []
    ids = alone(clock)
    for _ in range(500):
        clock.now += rnd.choice([0.1, 0.1, 3600.1, -3599.9])
        try:
            drawn += [ids.next_id() for _ in range(3)]
        except ClockWentBack:
            continue

    assert distinct(drawn)
    assert sorted(drawn) == drawn


def test_threads_get_every_id_once():
    drawn = draw_on_threads(Snowflake(3, 4).next_id, threads=8, each=2000)

    assert distinct(number for ids in drawn for number in ids) == 16_000
    assert all(ids == sorted(ids) for ids in drawn)


def test_what_does_not_fit_is_refused(subtests):
    for wrong in [
        {"layout": METEOR},
        {"layout": "x"},
        {"layout": Layout(sign=1, timestamp=41, sequence=12, datacenter=5, worker=5)},
        {"datacenter": 32},
        {"worker": -1},
        {"worker": None},
        {"epoch": 10**13},
        {"epoch": -1},
        {"on_clock_back": "hope"},
    ]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match="must"):
            Snowflake(**wrong)


def test_the_end_of_the_timestamps_is_an_error():
    with pytest.raises(Exhausted, match="ended at 2080-07-10"):
        alone(Clock(4_000_000_000.0)).next_id()


def test_a_child_refuses_the_parents_worker():
    ids = alone(Clock())
    ids.next_id()
    ids._forget()

    with pytest.raises(NotCopyable, match="a Snowflake cannot be used after a fork"):
        ids.next_id()
    with pytest.raises(NotCopyable):
        pickle.dumps(ids)


# -- leases


class Leases:
    """The database of the test: one table of workers, exact."""

    def __init__(self, workers: int = 1024) -> None:
        self.rows: dict[int, SnowflakeWorker] = {}
        self.workers = workers
        self.given = 0

    def lease(self, claim: LeaseClaim) -> Lease:
        if claim.lease is not None:
            row = self.rows[claim.lease.number]
            if row.holder != claim.lease.holder:
                raise LeaseLost("taken")
            self.write(row.number, row.holder, max(row.until, claim.until))
            return Lease(row.number, row.holder, claim.lease.since, claim.until)
        rows = list(self.rows.values())
        rows += [
            SnowflakeWorker(n, str(SNOWFLAKE), EPOCH, "busy", 1 << 60, "there", 2) for n in range(self.workers, 1024)
        ]
        chosen = choose_worker(rows, SNOWFLAKE, EPOCH, claim.now, 0)
        self.given += 1
        number, since = (
            (chosen, claim.now) if isinstance(chosen, int) else (chosen.number, max(claim.now, chosen.until + 1))
        )
        self.write(number, f"holder {self.given}", claim.until)
        return Lease(number, f"holder {self.given}", since, claim.until)

    def write(self, number: int, holder: str, until: int) -> None:
        self.rows[number] = SnowflakeWorker(number, str(SNOWFLAKE), EPOCH, holder, until, "here", 1)


class Process:
    """The core of one process, driven as the supply drives it."""

    def __init__(self, leases: Leases, span: float = 60.0) -> None:
        self.core = LeasedSnowflake(span, EPOCH, SNOWFLAKE)
        self.leases = leases
        self.away = False

    def draw(self, now: float, wall: float, count: int = 3) -> list[int]:
        for _ in range(3):
            want = self.core.want(now, wall)
            if isinstance(want, LeaseClaim):
                self.claim(want, now)
            if drawn := self.core.take(now)[:count]:
                return list(drawn)
        return []

    def claim(self, want: LeaseClaim, now: float) -> None:
        try:
            if self.away:
                raise DatabaseUnavailable("away")
            self.core.granted(want, self.leases.lease(want), now)
        except (LeaseLost, NodeIdsExhausted, DatabaseUnavailable) as error:
            self.core.failed(want, error, now)


def test_nothing_is_served_without_a_lease():
    process = Process(Leases())
    process.away = True

    assert process.draw(0.0, NOW) == []
    assert isinstance(process.core.want(0.5, NOW), Wait)


def leased(now: float, ahead: int = 0) -> tuple[LeasedSnowflake, Lease]:
    core = LeasedSnowflake(60.0, EPOCH, SNOWFLAKE)
    claim = core.want(now, NOW)
    assert isinstance(claim, LeaseClaim)
    lease = Lease(1, "us", claim.now + ahead, claim.until + ahead)
    core.granted(claim, lease, now)
    return core, lease


def milliseconds(ids: range) -> set[int]:
    return {SNOWFLAKE.unpack(number)["timestamp"] + EPOCH for number in {*ids[:1], *ids[-1:]}}


def test_ids_begin_with_the_lease_whatever_our_clock_says():
    for tick in range(200):
        core, lease = leased(now=tick / 7, ahead=tick)

        assert milliseconds(core.take(tick / 7)) == {lease.since}


def test_the_last_millisecond_of_a_lease_is_its_last():
    core, lease = leased(now=0.0)

    assert milliseconds(core.take(60.0005)) == {lease.until}
    assert milliseconds(core.take(60.0015)) == set()


def test_time_does_not_go_back_by_what_a_renewal_took():
    core, lease = leased(now=0.0)
    claim = core.want(6.1, NOW + 6.1)
    assert isinstance(claim, LeaseClaim)
    before = core.millisecond(7.0)
    core.granted(claim, replace(lease, until=claim.until), 7.0)

    assert core.millisecond(7.0) == before


def test_a_lease_is_renewed_when_a_tenth_of_it_is_used():
    process = Process(Leases())
    process.draw(0.0, NOW)
    assert process.core.want(5.9, NOW + 5.9) is None
    assert isinstance(process.core.want(6.1, NOW + 6.1), LeaseClaim)


def test_ids_go_on_while_the_database_is_away_for_less_than_the_lease():
    process = Process(Leases())
    process.draw(0.0, NOW)
    process.away = True
    for second in range(1, 60):
        assert process.draw(float(second), NOW + second)
    assert process.draw(61.0, NOW + 61) == []
    process.away = False

    assert process.draw(63.0, NOW + 63)


def test_a_process_stopped_for_longer_than_its_lease_and_its_successor_own_disjoint_rectangles():
    """One worker, two holders: the first is stopped, the second takes over, the first goes on."""
    leases = Leases(workers=1)
    first, second = Process(leases, span=10), Process(leases, span=10)
    drawn = first.draw(0.0, NOW) + first.draw(9.0, NOW + 9)
    taken = second.draw(1000.0, NOW + 25)
    late = first.draw(25.5, NOW + 25.5)  # its lease is lost, and there is no other worker
    again = second.draw(1001.0, NOW + 26)

    assert taken
    assert again
    assert late == []
    assert distinct(drawn + taken + again)


def test_control_without_the_range_of_time_they_repeat_each_others_ids():
    """What a lease without its timestamps would do: the stopped process goes on with the worker it had."""
    leases = Leases(workers=1)
    first, second = Process(leases, span=10), Process(leases, span=10)
    first.draw(0.0, NOW)
    taken = second.draw(25.0, NOW + 25)
    first.core.lease = Lease(0, "holder 1", 0, 1 << 60)  # the rule, broken

    assert set(first.draw(25.0, NOW + 25)) & set(taken)


def test_a_wall_clock_that_jumps_neither_repeats_nor_stops_ids():
    leases, rnd = Leases(), random.Random(2)
    processes = [Process(leases, span=2) for _ in range(4)]
    wall, drawn, idle = NOW, [], 0
    for tick in range(3000):
        wall += rnd.choice([0.1, 0.1, 3600.1, -3599.9])
        found = processes[tick % 4].draw(tick / 10, wall)
        idle += not found
        drawn += found

    assert distinct(drawn)
    assert idle < 30


def test_a_worker_leased_for_another_layout_or_epoch_is_refused():
    rows = [SnowflakeWorker(0, "1/41/10/12", EPOCH, "x", 5, "here", 1)]
    with pytest.raises(InvalidSetting, match=r"worker 0 was leased for layout 1/41/10/12 .* must use the same"):
        choose_worker(rows, SNOWFLAKE, EPOCH, 10, 0)


def test_when_all_workers_are_leased_it_says_by_whom():
    rows = [SnowflakeWorker(n, str(SNOWFLAKE), EPOCH, "x", 60_000 + n, f"host{n % 7}", 42) for n in range(1024)]
    with pytest.raises(
        NodeIdsExhausted, match=r"all 1024 workers are leased, by host0 \(process 42\), .* and others; .*10 s"
    ):
        choose_worker(rows, SNOWFLAKE, EPOCH, 50_000, 0)


def test_a_clock_that_is_mended_while_it_is_waited_for_is_noticed():
    clock = Clock()
    ids = alone(clock, on_clock_back="wait")
    ids.next_id()
    slept = []

    def mend(seconds: float) -> None:
        slept.append(seconds)
        clock.now = NOW + 60

    ids._sleep = mend
    clock.now -= 86_400
    ids.next_id()

    assert slept == [1.0]


def test_a_clock_that_a_test_has_stopped_is_refused_after_a_second():
    clock, slept = Clock(), []
    ids = alone(clock)
    ids._sleep = slept.append

    with pytest.raises(ClockWentBack, match="the clock has stood still"):
        ids.next_id()

    assert 1 <= sum(slept) < 1.1


def test_one_made_right_after_another_of_the_same_worker_repeats_nothing():
    assert distinct(Snowflake(1, 1).next_id() for _ in range(100)) == 100


def test_ids_increase_across_a_lost_lease_within_one_millisecond():
    process = Process(Leases())
    before = process.draw(5.0, NOW)
    process.core.failed(process.core.pace.begin(LeaseClaim(process.core.lease, 0, 0), 5.0), LeaseLost("x"), 5.0)
    assert process.draw(5.0, NOW) == []

    assert process.draw(5.002, NOW)[0] > before[-1]


def test_where_our_time_is_refused_the_next_lease_begins_by_the_wall_clock():
    """A service refuses whoever is far ahead of its clock, which was set back; we would be for ever."""
    process = Process(Leases())
    before = process.draw(5.0, NOW + 600)
    for error in (LeaseLost("not renewed: now must be within 60 seconds"), InvalidSetting("now must be within")):
        process.core.failed(process.core.pace.begin(process.core.want(11.5, NOW), 11.5), error, 11.5)
    after = process.draw(13.0, NOW + 1.5)

    assert milliseconds(range(after[0], after[-1] + 1)) == {round((NOW + 1.5) * 1000)}
    assert process.core.lease.number != 0
    assert distinct([*before, *after])


def test_where_the_clocks_were_set_back_ids_go_on_after_the_lease():
    """The database refuses to renew what its clock was ahead for; while the lease lasts its ids are good."""
    process = Process(Leases())
    before = process.draw(5.0, NOW + 600)
    refused = InvalidSetting("the clock of this machine is 600 s ahead")
    process.core.failed(process.core.pace.begin(process.core.want(11.5, NOW), 11.5), refused, 11.5)
    meanwhile = process.core.take(11.6)
    process.core.failed(process.core.pace.begin(process.core.want(66.5, NOW), 66.5), refused, 66.5)
    after = process.draw(68.0, NOW + 63)

    assert milliseconds(range(after[0], after[-1] + 1)) == {round((NOW + 63) * 1000)}
    assert distinct([*before, *meanwhile, *after])
    assert meanwhile


def test_numbers_that_never_were_leased_come_before_ended_ones():
    rows = [SnowflakeWorker(0, str(SNOWFLAKE), EPOCH, "x", 5, "here", 1)]

    assert choose_worker(rows, SNOWFLAKE, EPOCH, 10, 0) == 1


def test_a_worker_is_free_from_the_millisecond_after_its_lease():
    """Whoever takes it over begins at `now`, and the last millisecond of the lease is still its holder's."""
    rows = [SnowflakeWorker(n, str(SNOWFLAKE), EPOCH, "x", 60_000, "here", 1) for n in range(1024)]
    with pytest.raises(NodeIdsExhausted, match="the next lease ends in 0 s"):
        choose_worker(rows, SNOWFLAKE, EPOCH, 60_000, 0)

    assert choose_worker(rows, SNOWFLAKE, EPOCH, 60_001, 0) in rows
