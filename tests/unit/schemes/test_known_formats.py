"""The formats of others, read as they publish them; and what `Snowflake` makes by a layout of its caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.distinct import distinct
from support.memory.wall_clock import NOW, Clock

from allocator import Layout, Snowflake, inspect_id
from allocator.errors import ClockWentBack, Exhausted, InvalidId, InvalidSetting
from allocator.schemes.formats.known_formats import FORMATS, own_format
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID

PLAIN = Layout(sign=1, timestamp=41, worker=10, sequence=12)
SECONDS = Layout(sign=1, second=31, datacenter=4, worker=6, sequence=22)
JAVASCRIPT = Layout(sign=11, centisecond=37, worker=10, sequence=6)
OWN = [PLAIN, SECONDS, JAVASCRIPT, Layout(sign=1, timestamp=43, datacenter=3, worker=8, sequence=9)]


def made(clock: Clock, **settings) -> Snowflake:
    return Snowflake(clock=clock, sleep=clock.sleep, **settings)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)


def cosid(at: datetime, machine: int, sequence: int) -> int:
    """By the layout that CosId documents: milliseconds since 2019-12-24T16:00Z, 41 bits, machine 10, sequence 12."""
    return (at - utc(2019, 12, 24, 16)) // timedelta(milliseconds=1) << 22 | machine << 12 | sequence


def sonyflake(begin: datetime, at: datetime, machine: int, sequence: int) -> int:
    """By its `Compose(time, sequence, machine)`: elapsed << 24 | sequence << 16 | machine, in units of 10 ms."""
    return (at - begin) // timedelta(milliseconds=10) << 24 | sequence << 16 | machine


AT = utc(2026, 1, 2, 3, 4, 5, 670_000)
VECTORS = [
    # Wikipedia, "Snowflake ID": a tweet of machine 01 0111 1010.
    (
        "twitter",
        1541815603606036480,
        utc(2022, 6, 28, 16, 7, 40, 105_000),
        {"datacenter": 0b01011, "worker": 0b11010, "sequence": 0},
    ),
    # Discord's API reference: internal worker 1, process 0, increment 7.
    ("discord", 175928847299117063, utc(2016, 4, 30, 11, 18, 25, 796_000), {"worker": 1, "process": 0, "increment": 7}),
    # A medium of Instagram, of which the time is known by itself.
    ("instagram", 2384288897814875714, utc(2020, 8, 26, 13, 43, 27, 313_000), {"shard": 2675, "sequence": 578}),
    # The README of tsid-creator: getTime 9153062458, getRandom 305516.
    (
        "tsid",
        9153062458 << 22 | 305516,
        utc(2020, 4, 15, 22, 31, 2, 458_000),
        {"node": 305516 >> 12, "counter": 305516 & 4095},
    ),
    # The README of uid-generator; both times are of China.
    (
        "uid-generator:1/29/21/13",
        180363646902239241,
        utc(2017, 1, 19, 4, 15, 46),
        {"worker": 4, "sequence": 9},
    ),
    # Project ids of Sentry, from the DSN that CloudQuery ships, and by the formula of Sentry's own test.
    ("sentry", 4504409131515904, utc(2022, 12, 28, 23, 7, 33), {"version": 16, "region": 0, "sequence": 0}),
    ("sentry", (16 << 48) + (1000 << 16) + (2 << 4) + 15, utc(2022, 8, 8, 0, 16, 40), {"region": 2, "sequence": 15}),
    # Computed from the published layouts.
    ("sonyflake", sonyflake(utc(2014, 9, 1), AT, 40_000, 200), AT, {"machine": 40_000, "sequence": 200}),
    ("sonyflake-v2", sonyflake(utc(2025, 1, 1), AT, 40_000, 200), AT, {"machine": 40_000, "sequence": 200}),
    ("cosid", cosid(AT, 1, 2), AT, {"machine": 1, "sequence": 2}),
    (
        "cosid-second",
        (AT - utc(2019, 12, 24, 16)) // timedelta(seconds=1) << 32 | 5 << 22 | 9,
        AT,
        {"machine": 5, "sequence": 9},
    ),
    # Our own.
    ("javascript53", 391548764160323, utc(2026, 11, 23, 12), {"worker": 5, "sequence": 3}),
]
EPOCHS = {"uid-generator:1/29/21/13": 1_474_300_800}
"""The sample of uid-generator sets 2016-09-20, at midnight in China."""


def test_an_id_is_read_as_the_original_makes_it():
    for name, published, at, fields in VECTORS:
        (read,) = inspect_id(published, layout=name, epoch=EPOCHS.get(name)).readings

        assert fields.items() <= read.fields.items(), (name, published)
        assert timedelta() <= at - read.time < timedelta(seconds=1), (name, published)


def test_ids_of_a_layout_are_unique_and_in_order_and_a_tick_has_as_many_as_its_sequence():
    for layout in OWN:
        form, clock = own_format(layout, None), Clock()
        datacenter = layout.limit("datacenter") - 1 if "datacenter" in layout.widths else 0
        worker, size = layout.limit("worker") - 1, 1 << layout.widths["sequence"]
        ids = made(clock, layout=layout, datacenter=datacenter, worker=worker)
        count = min(2 * size + 2, 20_000)
        drawn = [ids.next_id() for _ in range(count)]
        fields = [layout.unpack(drawn[at]) for at in (0, -1)]
        first = int(NOW * form.per_second) + 1 - form.first_tick

        assert distinct(drawn)
        assert sorted(drawn) == drawn, layout
        assert [one[form.clock] for one in fields] == [first, first + (count - 1) // size], layout
        assert [one["sequence"] for one in fields] == [0, (count - 1) % size], layout
        assert [(one.get("datacenter", 0), one["worker"]) for one in fields] == [(datacenter, worker)] * 2, layout
        (read,) = inspect_id(drawn[-1], layout=layout).readings
        assert read.time.timestamp() == pytest.approx(clock.now, abs=1.1), layout


def test_two_workers_share_no_id():
    for layout in OWN:
        drawn = [
            [ids.next_id() for _ in range(50)] for ids in (made(Clock(), layout=layout, worker=n) for n in range(8))
        ]

        assert distinct(number for ids in drawn for number in ids) == 400, layout


def test_ids_for_javascript_are_below_2_to_the_53():
    for layout in (FORMATS["sentry"].layout, FORMATS["javascript53"].layout, JAVASCRIPT):
        last = layout.pack(**{field: layout.limit(field) for field in layout.widths if field != "sign"})

        assert last == JAVASCRIPT_MAX_ID
    with pytest.raises(InvalidId, match="an id must be 0 to 9007199254740991, got 9007199254740992"):
        inspect_id(2**53, layout="javascript53")


def test_a_clock_that_goes_back_is_refused_or_waited_for(subtests):
    for layout in [SECONDS, JAVASCRIPT]:
        with subtests.test(str(layout)):
            clock = Clock()
            refusing, waiting = made(clock, layout=layout), made(clock, layout=layout, on_clock_back="wait")
            first = [refusing.next_id(), waiting.next_id()]
            clock.now = NOW - 5.0
            with pytest.raises(ClockWentBack, match="the clock went back by [56][0-9]{3} ms"):
                refusing.next_id()
            second = waiting.next_id()

            assert second > first[1]
            assert clock.now >= NOW
            assert refusing.next_id() > first[0]


def test_a_clock_that_goes_back_within_a_tick_costs_nothing():
    clock = Clock()
    ids = made(clock, layout=SECONDS)
    drawn = [ids.next_id()]
    clock.now += 0.9
    drawn.append(ids.next_id())
    clock.now -= 0.8

    assert ids.next_id() == drawn[1] + 1 == drawn[0] + 2


def test_one_made_right_after_another_of_the_same_worker_repeats_nothing():
    for layout in [SECONDS, JAVASCRIPT]:
        clock = Clock()

        assert distinct(made(clock, layout=layout).next_id() for _ in range(20)) == 20, layout


def test_what_does_not_fit_is_refused(subtests):
    for wrong, sentence in [
        ({"layout": FORMATS["sentry"].layout}, "perhaps datacenter, worker and sequence, in this order"),
        ({"layout": FORMATS["discord"].layout}, "perhaps datacenter, worker and sequence, in this order"),
        ({"layout": FORMATS["meteor"].layout}, "perhaps datacenter, worker and sequence, in this order"),
        ({"layout": "discord"}, "layout must be a Layout of sign, one of (second|timestamp)"),
        ({"layout": PLAIN, "worker": 1024}, "worker must be 0 to 1023, got 1024"),
        ({"layout": PLAIN, "datacenter": 1}, "datacenter must be"),
        ({"layout": SECONDS, "epoch": 1_800_000_000}, "epoch must not be in the future"),
    ]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match=sentence):
            made(Clock(), **wrong)


def test_a_layout_that_has_ended_says_so():
    ended = Layout(sign=1, second=28, worker=22, sequence=13)
    with pytest.raises(Exhausted, match=r"layout 1/28/22/13 ended at 2024-11-20 .*; choose a later epoch or more bits"):
        made(Clock(), layout=ended).next_id()


def test_an_id_with_another_version_is_not_likely_of_sentry():
    (read,) = inspect_id(4504409131515904 ^ 1 << 48, layout="sentry").readings

    assert (read.likely, read.why) == (False, "the version of such an id is always 16, not 17")
