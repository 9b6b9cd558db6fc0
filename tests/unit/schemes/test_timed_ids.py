"""Ids that hold a time: Snowflake, alone and under leases, Meteor and ObjectId; every clock is an argument."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from time import time as now

import bson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.distinct import distinct
from support.kit import output
from support.memory.wall_clock import NOW, Clock
from support.processes.children import in_child
from support.processes.threads import draw_on_threads
from support.rules import rule

from allocator import Layout, Meteor, ObjectId, Snowflake
from allocator.errors import (
    AllocatorError,
    ClockWentBack,
    DatabaseUnavailable,
    Exhausted,
    InvalidId,
    InvalidSetting,
    LeaseLost,
    NodeIdsExhausted,
    NotCopyable,
)
from allocator.generators.objectid import Generator, generator, several
from allocator.runtime.iterators import LockedIterator
from allocator.schemes import worker_number_lease
from allocator.schemes.formats.bit_layout import Format
from allocator.schemes.meteor import METEOR, check_node
from allocator.schemes.objectid import ObjectIdBlocks
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.snowflake import (
    EPOCH,
    SNOWFLAKE,
    LeaseClaim,
    LeasedSnowflake,
    SnowflakeBlocks,
    SnowflakeSettings,
)
from allocator.schemes.worker_number_lease import Clocks, NumberLease

# -- Snowflake


def alone(clock: Clock, **settings) -> Snowflake:
    return Snowflake(1, 2, **{"clock": clock, "sleep": clock.sleep, **settings})


@rule(10)
def test_when_a_tick_is_drawn_waited_for_or_refused():
    blocks = SnowflakeBlocks(33, Format(SNOWFLAKE, EPOCH))

    assert len(blocks.draw(NOW, waits=False)) == 4096
    assert blocks.draw(NOW + 0.0004, waits=False) == Wait(pytest.approx(0.0006, abs=1e-6))
    assert blocks.draw(NOW - 3, waits=True) == Wait(3.0)
    with pytest.raises(ClockWentBack, match="the clock went back by 3000 ms, to 2026-09-21 14:13:17"):
        blocks.draw(NOW - 3, waits=False)
    assert len(blocks.draw(NOW + 1, waits=False)) == 4096


@pytest.mark.parametrize(("ids", "random"), [(Snowflake(3, 4), 0), (Meteor(node=5, second=0), 3)])
def test_threads_get_every_id_once(ids, random):
    drawn = draw_on_threads(ids.next_id, threads=8, each=2000)

    assert distinct(number >> random for drawn_here in drawn for number in drawn_here) == 16_000
    assert all(drawn_here == sorted(drawn_here) for drawn_here in drawn)
    assert distinct(sum(draw_on_threads(ObjectId, threads=8, each=1000), [])) == 8000


def test_the_end_of_the_timestamps_is_an_error():
    with pytest.raises(Exhausted, match=r"layout 1/41/5/5/12 ended at 2080-07-10 .*; choose a later epoch or"):
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

    def __init__(self) -> None:
        self.settings = SnowflakeSettings()
        self.core = LeasedSnowflake(self.settings, lambda: self.now)
        self.numbers = iter(range(9))
        self.asked, self.away = 0, False

    def at(self, own: float, wall: float | None = None) -> Process:
        """From then on: seconds of its own clock, and of the clock on the wall after `NOW`, as its own unless given."""
        self.now = Clocks(own, ms(own if wall is None else wall))
        return self

    def take(self) -> range:
        taken = self.core.take()
        return range(0) if isinstance(taken, Wait) else taken

    def draw(self, database: float | None = None) -> list[int]:
        """Three ids, where it gets any; the clock of the database is that of the process unless given."""
        for _ in range(4):
            if isinstance(want := self.core.want(self.now.own), LeaseClaim):
                self.claim(want, self.now.own if database is None else database)
            if drawn := self.take()[:3]:
                return list(drawn)
            if self.core.left(self.now) > 0:
                self.now = self.now._replace(own=self.now.own + self.core.passing(self.now))
        return []

    def claim(self, want: LeaseClaim, database: float) -> None:
        try:
            self.core.committed(want, self.answer(want, ms(database)), self.now.own)
        except AllocatorError as error:
            self.core.failed(want, error, self.now.own)

    def answer(self, want: LeaseClaim, at_ms: int) -> NumberLease:
        """Of a database where nobody else has a number: it refuses a clock that is far ahead of its own."""
        if self.away:
            raise DatabaseUnavailable("away")
        self.asked += 1
        claim = self.settings.claim(want.asked.wall_ms, f"holder {self.asked}", "here", 1)
        if want.lease and not worker_number_lease.is_near(claim.wall_ms, L, at_ms):
            raise LeaseLost
        worker_number_lease.check_clock(claim, at_ms)
        return want.lease or NumberLease(claim.space, next(self.numbers), claim.holder, L)


@pytest.fixture
def process() -> Process:
    return Process()


def times(ids: list[int] | range) -> set[int]:
    return {SNOWFLAKE.unpack(number)["timestamp"] + EPOCH for number in {*ids[:1], *ids[-1:]}}


def test_ids_begin_with_the_first_request_and_end_with_the_last(process):
    """However long its answer took, and by the clock of the process."""
    want = process.at(82.0, 5).core.want(82.0)
    process.at(83.5, 6.5).claim(want, 6)
    assert times(process.take()) == {ms(6.5)}
    process.away = True

    assert times(process.at(101.9995, 24).take()) == {ms(24.999)}
    assert process.at(102.0, 24).take() == range(0)


def test_a_lease_is_renewed_when_a_third_of_it_is_used_and_ids_go_on_to_its_end(process):
    process.at(0.0).draw()
    assert process.at(6.6).core.want(6.6) is None
    process.away = True
    assert all(process.at(second).draw() for second in (6.7, *range(7, 20)))
    assert process.at(20.0).draw() == []
    process.away = False

    assert process.at(23.0).draw()


@rule(10)
def test_a_wall_clock_that_steps_back_is_asked_for_no_time(process):
    """The next request asks with the last value, which the database takes."""
    drawn = [process.at(0.0).draw(), process.at(6.6).draw()]
    first = process.core.lease
    want = process.at(6.7, 6.7 - 3600).core.want(6.7)
    drawn.append(process.draw())
    process.claim(want, 6.7)  # an answer for a time before these ids
    drawn.append(process.draw())
    drawn += [process.at(second, second - 3600).draw() for second in range(7, 60)]

    assert all(drawn)
    assert sorted(drawn) == drawn
    assert process.core.lease == first == NumberLease("@snowflake", 0, "holder 1", L)


@rule(10)
def test_where_all_clocks_step_back_another_number_is_taken_after_one_question(process):
    """The database refuses times that are far ahead of its own; the old number stays held until they are over."""
    before = process.at(0.0).draw()
    after = process.at(7.0, -593).draw(-593)

    assert process.asked == 3, "for one, to renew it, and for another"
    assert times(after) == {ms(-593)}
    assert process.core.lease.number == 1
    assert distinct([*before, *after])


@rule(10)
def test_where_they_step_back_by_less_than_the_lease_ids_wait_until_they_are_near(process):
    before = process.at(0.0, 8).draw(0)
    drawn = [process.at(7 + tick / 10, -5 + tick / 10).draw(-5 + tick / 10) for tick in range(60)]
    first = next(tick for tick, ids in enumerate(drawn) if ids)

    assert 30 <= first < 40
    assert all(drawn[first:])
    assert drawn[first][0] > before[-1]
    assert process.asked <= 7, "for one, to renew it, and once a second for another"


@rule(10)
def test_ids_increase_across_a_lost_lease_within_one_millisecond(process):
    """Also where the number that follows is a lower one."""
    process.numbers = iter([1, 0])
    before = process.at(5.0).draw()
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


# -- Meteor, bit for bit


PUBLISHED = [585, 596, 600, 614, 616, 626, 635, 640, 651, 656]


@rule(10)
def test_the_sequence_wraps_into_the_next_second():
    """From the ids that were published."""
    ids = Meteor(node=0, second=292014, seed=1)
    drawn = [ids.next_id() for _ in range(2048)]

    assert drawn[:10] == [5016762319896000 + end for end in PUBLISHED]
    assert drawn[2046:] == [5016762319912958, 5016779499765764]


def test_the_field_ends_in_an_error_and_never_wraps():
    ids = Meteor(node=1, second=(1 << 29) - 1)
    last = [ids.next_id() for _ in range(2047)][-1]

    assert last < 2**63
    for _ in range(2):
        with pytest.raises(Exhausted, match="node 1 has used its last second, 2037-12-14 18:48:31"):
            ids.next_id()


def test_what_does_not_fit_is_refused(subtests):
    other = Layout(sign=1, second=29, node=20, random=3, sequence=11)
    for name, values in {
        "node": (-1, 1 << 20, None, True),
        "second": (-1, 1 << 29),
        "seed": (0, 1 << 16),
        "epoch": (None, 2**40, 10**11),
        "layout": (SNOWFLAKE, None, other),
    }.items():
        for value in values:
            with subtests.test(name=name, value=value), pytest.raises(InvalidSetting, match="must"):
                Meteor(**{"node": 1} | {name: value})


def test_node_numbers_warn_before_they_end():
    assert check_node(838_859, METEOR) == ""
    assert "80 % of the node numbers" in check_node(838_861, METEOR)
    with pytest.raises(NodeIdsExhausted, match="node 1048576 does not fit the layout 1/29/20/11/3"):
        check_node(1 << 20, METEOR)


def test_any_widths_give_unique_increasing_ids():
    for widths in [(29, 20, 11, 3), (40, 20, 1, 2), (20, 10, 20, 13), (10, 8, 5, 40), (29, 22, 11, 1)]:
        layout = Layout(**dict(zip(("sign", "second", "node", "sequence", "random"), (1, *widths), strict=True)))
        ids = Meteor(node=layout.limit("node"), second=3, layout=layout)
        drawn = [ids.next_id() for _ in range(5000)] if widths[0] > 10 else [ids.next_id() for _ in range(500)]

        assert distinct(number >> layout.widths["random"] for number in drawn)
        assert sorted(drawn) == drawn, widths
        assert {layout.unpack(number)["node"] for number in drawn} == {layout.limit("node")}, widths


def test_seconds_that_ended_before_the_start_are_an_error():
    with pytest.raises(Exhausted, match="the field second of layout 1/29/20/11/3 ended at 1987"):
        Meteor(node=1, epoch=0)
    with pytest.raises(InvalidSetting, match=r"the epoch, 2096-10-02 .*, must not be in the future; the clock says 2"):
        Meteor(node=1, epoch=4_000_000_000)


# -- ObjectId: the value, and the ids made from nothing


TEXT = "4df2dcec2cdcd20936a8b817"


RAW = st.binary(min_size=12, max_size=12)


@settings(max_examples=50)
@given(RAW, RAW)
@example(b"\xff" * 12, bytes(12))  # seconds are unsigned, to 2106
def test_it_is_a_value_that_is_interchangeable_with_bsons(one, other):
    mine, theirs = ObjectId(one), bson.ObjectId(one)
    at = theirs.generation_time

    assert (bytes(mine), str(mine), mine.generation_time) == (theirs.binary, str(theirs), at)
    assert mine == ObjectId(theirs) == ObjectId(str(theirs).upper()) == ObjectId(mine) == bson.ObjectId(mine)
    assert mine == ObjectId.from_parts(int.from_bytes(one[:4]), one[4:9], int.from_bytes(one[9:]))
    assert len({mine, theirs, copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))}) == 1
    assert (mine < ObjectId(other)) == (mine < bson.ObjectId(other)) == (theirs < ObjectId(other)) == (one < other)
    assert ObjectId.from_datetime(at) == ObjectId.from_datetime(at.replace(tzinfo=None)) == theirs.from_datetime(at)
    assert bson.decode(bson.encode({"_id": mine, "in": [mine]})) == {"_id": theirs, "in": [theirs]}
    written = bson._name_value_to_bson(b"_id\0", mine, False, bson.codec_options.DEFAULT_CODEC_OPTIONS)
    assert written == b"\x07_id\0" + one, "by its Python, where it has an extension in C"


def test_it_does_not_change_and_is_no_text():
    value = ObjectId(TEXT)

    assert (value != TEXT, repr(value), type(copy.copy(value))) == (True, f"ObjectId('{TEXT}')", ObjectId)
    with pytest.raises(AttributeError, match="binary"):
        value.binary = b""


def test_anything_else_is_refused(subtests):
    for wrong in ["", "a" * 23, "a" * 25, "g" * 24, " " * 24, b"x" * 11, b"", 5, 1.5, ["a"], "ä" * 24]:
        with subtests.test(wrong=wrong):
            assert not ObjectId.is_valid(wrong)
            with pytest.raises(InvalidId, match="12 bytes or 24 hex digits, got"):
                ObjectId(wrong)
    assert all(map(ObjectId.is_valid, [TEXT, TEXT.upper(), b"x" * 12, ObjectId(TEXT)]))
    assert not any(map(ObjectId.is_valid, [None, 0]))


@pytest.fixture
def blocks() -> ObjectIdBlocks:
    return ObjectIdBlocks(b"proc!", 5)


def test_the_counter_goes_up_by_one_and_wraps_after_ffffff():
    blocks = ObjectIdBlocks(b"proc!", 0xFFFFFE)
    made = [raw for _ in range(3) for raw in blocks.take(7)]

    assert [int.from_bytes(raw[9:], "big") for raw in made[:4]] == [0xFFFFFE, 0xFFFFFF, 0, 1]
    assert {raw[:9] for raw in made} == {b"\0\0\0\7proc!"}


@rule(10)
def test_the_counter_counts_ids_not_seconds(monkeypatch):
    """Over its end too, and while the clock steps back; a call that still holds the last block draws nothing."""
    now, drawn = [1000.0], []
    source = Generator(b"proc!", 0xFFFFFE, clock=lambda: now[0])
    monkeypatch.setattr("allocator.generators.objectid.generator", source)
    monkeypatch.setattr("allocator.generators.objectid.time", lambda: now[0])
    for step, ids in [(0, 1), (1, 1), (1, 1), (0.5, 2), (-900, 3), (2000, 1), (1, 300), (1, 1)]:
        now[0] += step
        held = source.values
        drawn += several(ids) if ids > 1 else [ObjectId().binary]
        if held is not source.values:
            drawn += held

    assert [int.from_bytes(raw[9:], "big") for raw in drawn] == [
        (0xFFFFFE + made) & 0xFFFFFF for made in range(distinct(drawn))
    ]


def test_of_a_second_that_lasts_no_id_is_given_back(blocks):
    """Another thread may hold them: only in a new second do their counters make other ids."""
    held = blocks.take(7)
    drawn = [*blocks.take(7, unused=251), *held]

    assert distinct(drawn) == len(drawn)


def test_more_than_a_second_holds_wait_for_the_next(blocks):
    made = list(blocks.take(7))
    assert len(made) + blocks._left == 1 << 24
    blocks._left = 300
    while not isinstance(more := blocks.take(7.25), Wait):
        made += more

    assert len(made) == 251 + 300
    assert more.seconds == 0.75
    assert next(blocks.take(8))[:4] == b"\0\0\0\x08"


@rule(10)
def test_after_a_clock_that_went_back_no_second_begins_anew(blocks):
    """Its 2**24 ids are counted once: a second that is left and come back to would have more than the counter has."""
    blocks.take(7)
    assert next(blocks.take(5))[:4] == b"\0\0\0\x07"
    assert blocks._left == (1 << 24) - 507
    blocks._left = 0
    assert next(blocks.take(5))[:4] == b"\0\0\0\x08", "a full one is followed by the next"


def test_new_ones_increase_and_hold_the_time():
    before = int(datetime.now(UTC).timestamp())
    drawn = [ObjectId() for _ in range(2000)]

    assert distinct(drawn) == 2000
    assert before <= drawn[0].seconds <= drawn[-1].seconds <= before + 5
    assert len({bytes(made)[4:9] for made in drawn}) == 1


def test_a_child_is_another_process():
    assert in_child(lambda: str(ObjectId()))[8:18] != str(ObjectId())[8:18]


def test_a_call_in_which_a_signal_handler_forked_draws_the_childs_ids(monkeypatch):
    parents = bytes(ObjectId())[4:9]

    def time() -> float:
        generator._forget(), generator.after_fork()  # what the hook does in the child
        return now()

    monkeypatch.setattr("allocator.generators.objectid.time", time)

    assert bytes(ObjectId())[4:9] != parents


def test_what_a_call_holds_that_a_fork_interrupted_is_empty(monkeypatch):
    for kind in (LockedIterator, iter):
        monkeypatch.setattr("allocator.runtime.iterators.iterator", kind)
        made, other = Generator(bytes(5), 0), alone(Clock())
        made.refill(), other.next_id()
        held = made.values, other._values
        made._forget(), other._forget()

        assert [list(values) for values in held] == [[], []]


def test_bsons_own_import_may_come_later():
    """In a process of its own: nothing of bson is there when ours is made."""
    code = (
        "from allocator import ObjectId; mine = ObjectId(); assert mine.__class__ is ObjectId; import bson; "
        "assert bson.ObjectId(mine) == mine"
    )
    assert output(code) == ""
