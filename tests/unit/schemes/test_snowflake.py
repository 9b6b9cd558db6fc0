"""Snowflake: alone, and under leases; every clock is an argument."""

import pickle
from dataclasses import replace

import pytest
from simulation import lease_rows
from support.distinct import distinct
from support.memory.wall_clock import NOW, Clock
from support.processes.threads import draw_on_threads

from allocator import Snowflake
from allocator.errors import (
    ClockWentBack,
    DatabaseUnavailable,
    Exhausted,
    InvalidSetting,
    LeaseLost,
    NodeIdsExhausted,
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
    return Snowflake(1, 2, clock=clock, sleep=clock.sleep, **settings)


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


def test_a_child_refuses_the_parents_worker():
    ids = alone(Clock())
    ids.next_id()
    ids._forget()

    with pytest.raises(NotCopyable, match="a Snowflake cannot be used after a fork"):
        ids.next_id()
    with pytest.raises(NotCopyable):
        pickle.dumps(ids)


# -- leases

L = 20_000


class Database:
    """Rows of the space, by the lease rule; its clock is an argument."""

    def __init__(self, workers: int = 1024) -> None:
        self.rows: dict[int, NumberRow] = {}
        self.free_below = workers
        self.asked = 0

    def do(self, claim: LeaseClaim, settings: SnowflakeSettings, at_ms: int) -> NumberLease:
        self.asked += 1
        held = claim.lease
        if held is not None:
            row = lease_rows.renewed(self.rows[held.number], held, claim.asked.wall_ms, at_ms)
            if row is None:
                raise rule.lost(held)
            self.rows[held.number] = row
            return held
        wanted = settings.claim(claim.asked.wall_ms, f"holder {self.asked}", "here", 1)
        rule.check_clock(wanted, at_ms)
        busy = [lease_rows.leased(n, replace(wanted, holder="busy"), 1 << 60) for n in range(self.free_below, 1024)]
        chosen = rule.choose([*self.rows.values(), *busy], wanted, ALL, at_ms, 1, 0)
        number = chosen if isinstance(chosen, int) else chosen.number
        self.rows[number] = lease_rows.leased(chosen, wanted, at_ms)
        return NumberLease(wanted.space, number, wanted.holder, wanted.length_ms)


class Process:
    """The core of one process, driven as the supply drives it."""

    def __init__(self, database: Database, boot: float = 0.0) -> None:
        self.settings = SnowflakeSettings()
        self.core = LeasedSnowflake(self.settings, lambda: self.now)
        self.database, self.boot = database, boot
        self.away = False

    def clocks(self, now: float, wall: float) -> Clocks:
        """Sets them."""
        self.now = Clocks(self.boot + now, round(wall * 1000))
        return self.now

    def want(self, now: float, wall: float) -> LeaseClaim | Wait | None:
        self.clocks(now, wall)
        return self.core.want(now)

    def take(self, now: float, wall: float) -> range:
        self.clocks(now, wall)
        taken = self.core.take()
        return range(0) if isinstance(taken, Wait) else taken

    def draw(self, now: float, wall: float, at: float | None = None, count: int = 3) -> list[int]:
        """at: the clock of the database; as of the world unless given."""
        for _ in range(4):
            want = self.want(now, wall)
            if isinstance(want, LeaseClaim):
                self.claim(want, now, wall, NOW + now if at is None else at)
            if drawn := self.take(now, wall)[:count]:
                return list(drawn)
            if self.core.left(self.clocks(now, wall)) > 0:
                now += self.core.passing(self.clocks(now, wall))
        return []

    def claim(self, want: LeaseClaim, now: float, wall: float, at: float) -> None:
        try:
            if self.away:
                raise DatabaseUnavailable("away")
            lease = self.database.do(want, self.settings, round(at * 1000))
        except (InvalidSetting, LeaseLost, NodeIdsExhausted, DatabaseUnavailable) as error:
            self.core.failed(want, error, now)
        else:
            self.clocks(now, wall)
            self.core.committed(want, lease, now)


def times(ids: list[int] | range) -> set[int]:
    return {SNOWFLAKE.unpack(number)["timestamp"] + EPOCH for number in {*ids[:1], *ids[-1:]}}


def ms(seconds: float) -> int:
    return round(1000 * (NOW + seconds))


def test_nothing_is_served_without_a_lease():
    process = Process(Database())
    process.away = True

    assert process.draw(0.0, NOW) == []
    assert isinstance(process.want(0.5, NOW), Wait)


def test_ids_begin_with_the_first_request_and_end_with_the_last():
    """However long its answer took, and by the clock of the process."""
    process = Process(Database(), boot=77.0)
    want = process.want(5.0, NOW + 5)
    assert isinstance(want, LeaseClaim)
    process.claim(want, 6.5, NOW + 6.5, NOW + 6)
    assert times(process.take(6.5, NOW + 6.5)) == {ms(6.5)}
    process.away = True

    assert times(process.take(24.9995, NOW + 24)) == {ms(24.999)}
    assert process.take(25.0, NOW + 24) == range(0)


def test_an_answer_after_the_end_of_the_lease_gives_no_id():
    process = Process(Database())
    want = process.want(0.0, NOW)
    assert isinstance(want, LeaseClaim)
    process.claim(want, 20.0, NOW + 20, NOW + 1)

    assert process.take(20.0, NOW + 20) == range(0)


def test_a_lease_is_renewed_when_a_third_of_it_is_used():
    process = Process(Database())
    process.draw(0.0, NOW)

    assert process.want(6.6, NOW + 6.6) is None
    assert isinstance(process.want(6.7, NOW + 6.7), LeaseClaim)


def test_ids_go_on_while_the_database_is_away_for_less_than_the_lease():
    process = Process(Database())
    process.draw(0.0, NOW)
    process.away = True
    for second in range(1, 20):
        assert process.draw(float(second), NOW + second)
    assert process.draw(20.0, NOW + 20) == []
    process.away = False

    assert process.draw(23.0, NOW + 23)


def test_a_wall_clock_that_steps_back_is_asked_for_no_time():
    """The next request asks with the last value, which the database takes."""
    process = Process(Database())
    before = process.draw(0.0, NOW)
    for second in range(1, 60):
        after = process.draw(float(second), NOW - 3600 + second)
        assert after > before
        before = after

    assert process.core.lease == NumberLease("@snowflake", 0, "holder 1", L)


def test_where_all_clocks_step_back_another_number_is_taken_after_one_question():
    """The database refuses times that are far ahead of its own; the old number stays held until they are over."""
    database = Database()
    process = Process(database)
    before = process.draw(0.0, NOW)
    asked = database.asked
    after = process.draw(7.0, NOW - 593, at=NOW - 593)

    assert database.asked == asked + 2, "to renew, and for another"
    assert times(after) == {ms(-593)}
    assert process.core.lease is not None
    assert process.core.lease.number == 1
    assert distinct([*before, *after])


def test_where_they_step_back_by_less_than_the_lease_ids_wait_until_they_are_near():
    database = Database()
    process = Process(database)
    before = process.draw(0.0, NOW + 8, at=NOW)
    asked = database.asked
    drawn = [process.draw(7 + tick / 10, NOW - 5 + tick / 10, at=NOW - 5 + tick / 10) for tick in range(60)]
    first = next(tick for tick, ids in enumerate(drawn) if ids)

    assert 30 <= first < 40
    assert all(drawn[first:])
    assert drawn[first][0] > before[-1]
    assert database.asked - asked <= 6, "to renew, and once a second for another"


def test_ids_increase_across_a_lost_lease_within_one_millisecond():
    """Also where the number that follows is a lower one."""
    database = Database()
    Process(database).draw(5.0, NOW + 5)
    process = Process(database)
    before = process.draw(5.0, NOW + 5)
    database.rows[0] = replace(database.rows[0], holder="", used_until_ms=0)
    renewal = LeaseClaim(process.core.lease, process.clocks(5.0, NOW + 5))
    process.core.failed(process.core.pace.begin(renewal, 5.0), LeaseLost("x"), 5.0)
    after = process.draw(5.0, NOW + 5)

    assert process.core.lease is not None
    assert process.core.lease.number == 0
    assert after[0] > before[-1]


def test_a_worker_is_given_back_with_the_last_time_in_use(subtests):
    for drawn in (True, False):
        with subtests.test(drawn=drawn):
            process = Process(Database())
            process.draw(0.0, NOW)
            if drawn:
                process.take(3.0, NOW - 9)
            found = process.core.given_back(process.clocks(3.0, NOW - 9))

            assert found is not None
            assert found[0].number == 0
            assert found[1] >= ms(3.0 if drawn else 0.0)
            assert process.take(3.001, NOW) == range(0)


def test_a_lease_that_has_ended_is_not_given_back():
    process = Process(Database())
    process.draw(0.0, NOW)

    assert process.core.given_back(process.clocks(20.0, NOW)) is None


def test_a_request_names_the_layout_and_epoch():
    claim = SnowflakeSettings(epoch=7).claim(ms(0), "a", "here", 1)

    assert (claim.space, claim.bits, claim.length_ms, claim.format) == ("@snowflake", 10, L, "1/41/5/5/12 7")


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
