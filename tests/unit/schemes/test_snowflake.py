"""Snowflake: alone, and under leases; every clock is an argument."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from simulation import lease_rows
from support.distinct import distinct
from support.memory.wall_clock import NOW, Clock
from support.processes.children import in_child
from support.processes.threads import draw_on_threads

from allocator import Meteor, Snowflake
from allocator.errors import (
    AllocatorError,
    ClockWentBack,
    DatabaseUnavailable,
    Exhausted,
    LeaseLost,
    NotCopyable,
)
from allocator.schemes import worker_number_lease as rule
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.shared.residues import ALL
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.snowflake import (
    EPOCH,
    SNOWFLAKE,
    LeaseClaim,
    LeasedSnowflake,
    SnowflakeBlocks,
    SnowflakeSettings,
)
from allocator.schemes.worker_number_lease import Clocks, NumberLease, NumberRow


def alone(clock: Clock, **settings) -> Snowflake:
    return Snowflake(1, 2, **{"clock": clock, "sleep": clock.sleep, **settings})


def test_when_a_tick_is_drawn_waited_for_or_refused():
    blocks = SnowflakeBlocks(33, Format(SNOWFLAKE, EPOCH))

    assert len(blocks.draw(NOW, waits=False)) == 4096
    assert blocks.draw(NOW + 0.0004, waits=False) == Wait(pytest.approx(0.0006, abs=1e-6))
    assert blocks.draw(NOW - 3, waits=True) == Wait(3.0)
    with pytest.raises(ClockWentBack):
        blocks.draw(NOW - 3, waits=False)
    assert len(blocks.draw(NOW + 1, waits=False)) == 4096


def test_threads_get_every_id_once():
    drawn = draw_on_threads(Snowflake(3, 4).next_id, threads=8, each=2000)

    assert distinct(number for ids in drawn for number in ids) == 16_000
    assert all(ids == sorted(ids) for ids in drawn)


def test_the_end_of_the_timestamps_is_an_error():
    with pytest.raises(Exhausted, match="ended at 2080-07-10"):
        alone(Clock(4_000_000_000.0)).next_id()


@pytest.mark.parametrize("ids", [Snowflake(1, 2), Meteor(node=1)], ids=["Snowflake", "Meteor"])
def test_a_child_refuses_the_parents_worker_or_node(ids):
    ids.next_id()

    assert in_child(ids.next_id).startswith(f"NotCopyable: a {type(ids).__name__} cannot be used after a fork")
    with pytest.raises(NotCopyable):
        pickle.dumps(ids)


def test_a_clock_that_is_mended_while_it_is_waited_for_is_noticed():
    clock, slept = Clock(), []

    def mend(seconds: float) -> None:
        slept.append(seconds)
        clock.now = NOW + (60 if clock.now < NOW else 1)

    ids = alone(clock, on_clock_back="wait", sleep=mend)
    ids.next_id()
    slept.clear()
    clock.now -= 86_400
    ids.next_id()

    assert slept == [1.0]


def test_a_clock_that_a_test_has_stopped_is_refused_after_a_second():
    slept = []
    with pytest.raises(ClockWentBack, match="the clock has stood still"):
        alone(Clock(), sleep=slept.append).next_id()

    assert 1 <= sum(slept) < 1.1


# -- leases

L = 20_000


def ms(seconds: float) -> int:
    return round(1000 * (NOW + seconds))


class Process:
    """The core of one process, driven as the supply drives it; its clocks and that of the database are arguments."""

    def __init__(self, rows: dict[int, NumberRow] | None = None) -> None:
        self.settings = SnowflakeSettings()
        self.core = LeasedSnowflake(self.settings, lambda: self.now)
        self.rows = {} if rows is None else rows
        self.asked, self.away = 0, False

    def at(self, own: float, wall: float | None = None) -> Process:
        """From then on: seconds of its own clock, and of the clock on the wall after `NOW`, as its own unless given."""
        self.now = Clocks(own, ms(own if wall is None else wall))
        return self

    def want(self) -> LeaseClaim | Wait | None:
        return self.core.want(self.now.own)

    def take(self) -> range:
        taken = self.core.take()
        return range(0) if isinstance(taken, Wait) else taken

    def draw(self, database: float | None = None) -> list[int]:
        """Three ids, where it gets any; the clock of the database is that of the process unless given."""
        for _ in range(4):
            if isinstance(want := self.want(), LeaseClaim):
                self.claim(want, self.now.own if database is None else database)
            if drawn := self.take()[:3]:
                return list(drawn)
            if self.core.left(self.now) > 0:
                self.now = self.now._replace(own=self.now.own + self.core.passing(self.now))
        return []

    def claim(self, want: LeaseClaim, database: float) -> None:
        try:
            lease = self.answer(want, ms(database))
        except AllocatorError as error:
            self.core.failed(want, error, self.now.own)
        else:
            self.core.committed(want, lease, self.now.own)

    def answer(self, want: LeaseClaim, at_ms: int) -> NumberLease:
        """Of the database, by the lease rule."""
        if self.away:
            raise DatabaseUnavailable("away")
        self.asked += 1
        if held := want.lease:
            row = lease_rows.renewed(self.rows[held.number], held, want.asked.wall_ms, at_ms)
            if row is None:
                raise rule.lost(held)
            self.rows[held.number] = row
            return held
        wanted = self.settings.claim(want.asked.wall_ms, f"holder {self.asked}", "here", 1)
        rule.check_clock(wanted, at_ms)
        chosen = rule.choose([*self.rows.values()], wanted, ALL, at_ms, 1, 0)
        row = lease_rows.leased(chosen, wanted, at_ms)
        self.rows[row.number] = row
        return NumberLease(wanted.space, row.number, wanted.holder, wanted.length_ms)


@pytest.fixture
def process() -> Process:
    return Process()


def times(ids: list[int] | range) -> set[int]:
    return {SNOWFLAKE.unpack(number)["timestamp"] + EPOCH for number in {*ids[:1], *ids[-1:]}}


def test_nothing_is_served_without_a_lease(process):
    process.away = True

    assert process.at(0.0).draw() == []
    assert isinstance(process.at(0.5, 0.0).want(), Wait)


def test_ids_begin_with_the_first_request_and_end_with_the_last(process):
    """However long its answer took, and by the clock of the process."""
    want = process.at(82.0, 5).want()
    process.at(83.5, 6.5).claim(want, 6)
    assert times(process.take()) == {ms(6.5)}
    process.away = True

    assert times(process.at(101.9995, 24).take()) == {ms(24.999)}
    assert process.at(102.0, 24).take() == range(0)


def test_an_answer_after_the_end_of_the_lease_gives_no_id(process):
    want = process.at(0.0).want()
    process.at(20.0).claim(want, 1)

    assert process.take() == range(0)


def test_a_lease_is_renewed_when_a_third_of_it_is_used_and_ids_go_on_to_its_end(process):
    process.at(0.0).draw()
    assert process.at(6.6).want() is None
    process.away = True
    assert all(process.at(second).draw() for second in (6.7, *range(7, 20)))
    assert process.at(20.0).draw() == []
    process.away = False

    assert process.at(23.0).draw()


def test_a_wall_clock_that_steps_back_is_asked_for_no_time(process):
    """The next request asks with the last value, which the database takes."""
    drawn = [process.at(0.0).draw()]
    first = process.core.lease
    drawn += [process.at(second, second - 3600).draw() for second in range(1, 60)]

    assert all(drawn)
    assert sorted(drawn) == drawn
    assert process.core.lease == first == NumberLease("@snowflake", 0, "holder 1", L)


def test_where_all_clocks_step_back_another_number_is_taken_after_one_question(process):
    """The database refuses times that are far ahead of its own; the old number stays held until they are over."""
    before = process.at(0.0).draw()
    after = process.at(7.0, -593).draw(-593)

    assert process.asked == 3, "for one, to renew it, and for another"
    assert times(after) == {ms(-593)}
    assert process.core.lease.number == 1
    assert distinct([*before, *after])


def test_where_they_step_back_by_less_than_the_lease_ids_wait_until_they_are_near(process):
    before = process.at(0.0, 8).draw(0)
    drawn = [process.at(7 + tick / 10, -5 + tick / 10).draw(-5 + tick / 10) for tick in range(60)]
    first = next(tick for tick, ids in enumerate(drawn) if ids)

    assert 30 <= first < 40
    assert all(drawn[first:])
    assert drawn[first][0] > before[-1]
    assert process.asked <= 7, "for one, to renew it, and once a second for another"


def test_ids_increase_across_a_lost_lease_within_one_millisecond(process):
    """Also where the number that follows is a lower one."""
    Process(process.rows).at(5.0).draw()
    before = process.at(5.0).draw()
    process.rows[0] = replace(process.rows[0], holder="", used_until_ms=0)
    renewal = LeaseClaim(process.core.lease, process.now)
    process.core.failed(process.core.pace.begin(renewal, 5.0), LeaseLost("x"), 5.0)
    after = process.at(5.0).draw()

    assert process.core.lease.number == 0
    assert after[0] > before[-1]


@pytest.mark.parametrize("used", [True, False])
def test_a_worker_is_given_back_with_the_last_time_in_use_unless_its_lease_has_ended(process, used):
    process.at(0.0).draw()
    process.at(3.0, -9)
    if used:
        process.take()
    lease, used_ms = process.core.given_back(process.now)

    assert lease.number == 0
    assert used_ms >= ms(3.0 if used else 0.0)
    assert process.at(3.001, 0.0).take() == range(0)
    process.at(30.0).draw()
    assert process.core.given_back(process.at(50.0, 30).now) is None


def test_a_request_names_the_layout_and_epoch():
    claim = SnowflakeSettings(epoch=7).claim(ms(0), "a", "here", 1)

    assert (claim.space, claim.bits, claim.length_ms, claim.format) == ("@snowflake", 10, L, "1/41/5/5/12 7")
