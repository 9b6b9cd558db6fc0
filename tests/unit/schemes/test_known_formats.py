"""The formats of others: what `Snowflake` makes in them is what they publish, unique and in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from support.distinct import distinct
from support.memory.wall_clock import NOW, Clock

from allocator import Layout, Snowflake, inspect_id
from allocator.errors import ClockWentBack, Exhausted, InvalidId, InvalidSetting
from allocator.schemes.formats.known_formats import FORMATS, GENERATED, format_of
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID

CHINA = timedelta(hours=8)
USABLE = [name for name in GENERATED if FORMATS[name].ends > datetime(2026, 11, 1, tzinfo=UTC)]
WIDER = ["uid-generator:1/31/19/13", "instagram:1/41/12/10", "javascript53:11/38/9/6"]


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
    ("twitter", 1541815603606036480, utc(2022, 6, 28, 16, 7, 40, 105_000), 0b01011_11010, 0),
    # Discord's API reference: internal worker 1, process 0, increment 7.
    ("discord", 175928847299117063, utc(2016, 4, 30, 11, 18, 25, 796_000), 1 << 5, 7),
    # A medium of Instagram, of which the time is known by itself.
    ("instagram", 2384288897814875714, utc(2020, 8, 26, 13, 43, 27, 313_000), 2675, 578),
    # The README of tsid-creator: getTime 9153062458, getRandom 305516.
    ("tsid", 9153062458 << 22 | 305516, utc(2020, 4, 15, 22, 31, 2, 458_000), 305516 >> 12, 305516 & 4095),
    # The README of uid-generator; both times are of China.
    ("uid-generator:1/29/21/13", 180363646902239241, utc(2017, 1, 19, 12, 15, 46) - CHINA, 4, 9),
    # Project ids of Sentry, from the DSN that CloudQuery ships, and by the formula of Sentry's own test.
    ("sentry", 4504409131515904, utc(2022, 12, 28, 23, 7, 33), 0, 0),
    ("sentry", (16 << 48) + (1000 << 16) + (2 << 4) + 15, utc(2022, 8, 8, 0, 16, 40), 2, 15),
    # Computed from the published layouts.
    ("sonyflake", sonyflake(utc(2014, 9, 1), AT, 40_000, 200), AT, 40_000, 200),
    ("sonyflake-v2", sonyflake(utc(2025, 1, 1), AT, 40_000, 200), AT, 40_000, 200),
    ("cosid", cosid(AT, 1, 2), AT, 1, 2),
    ("cosid-second", (AT - utc(2019, 12, 24, 16)) // timedelta(seconds=1) << 32 | 5 << 22 | 9, AT, 5, 9),
    # Our own.
    ("javascript53", 391548764160323, utc(2026, 11, 23, 12), 5, 3),
]
EPOCHS = {"uid-generator:1/29/21/13": 1_474_300_800}
"""The sample of uid-generator sets 2016-09-20, at midnight in China."""


def test_an_id_is_made_as_the_original_makes_it():
    for name, published, at, worker, sequence in VECTORS:
        clock = Clock(at.timestamp() - 2)
        ids = made(clock, format=name, worker=worker, epoch=EPOCHS.get(name))
        clock.now = at.timestamp() + 1e-4
        drawn = list(islice(iter(ids.next_id, None), sequence + 1))
        (read,) = inspect_id(published, layout=name, epoch=EPOCHS.get(name)).readings

        assert drawn[-1] == published, (name, published)
        assert timedelta() <= at - read.time < timedelta(seconds=1), (name, published)


def test_ids_are_unique_and_in_order_and_a_tick_has_as_many_as_its_field():
    for name in USABLE + WIDER:
        (_, form), clock = format_of(name), Clock()
        worker = (1 << form.worker_bits) - 2
        ids = made(clock, format=name, worker=worker)
        size = 1 << form.layout.widths[form.counter]
        count = min(2 * size + 2, 20_000)
        drawn = [ids.next_id() for _ in range(count)]
        fields = [form.layout.unpack(drawn[at]) for at in (0, -1)]
        first = int(NOW * form.per_second) + 1 - form.first_tick

        assert distinct(drawn)
        assert sorted(drawn) == drawn, name
        assert [one[form.clock] for one in fields] == [first, first + (count - 1) // size], name
        assert [one[form.counter] for one in fields] == [0, (count - 1) % size], name
        assert {**form.fixed, **form.worker_values(worker)}.items() <= fields[0].items(), name
        assert form.worker_values(worker) == {name: fields[-1][name] for name in form.worker_fields}, name


def test_two_workers_share_no_id():
    for name in ["twitter", "discord", "instagram", "sonyflake", "cosid", "sentry", "javascript53"]:
        drawn = [[ids.next_id() for _ in range(50)] for ids in (made(Clock(), format=name, worker=n) for n in range(8))]

        assert distinct(number for ids in drawn for number in ids) == 400, name


def test_ids_for_javascript_are_below_2_to_the_53():
    for name in ("sentry", "javascript53"):
        form = FORMATS[name]
        last = form.layout.pack(**{field: form.layout.limit(field) for field in form.layout.widths if field != "sign"})

        assert last == JAVASCRIPT_MAX_ID
    with pytest.raises(InvalidId, match="an id must be 0 to 9007199254740991, got 9007199254740992"):
        inspect_id(2**53, layout="javascript53")


def test_a_clock_that_goes_back_is_refused_or_waited_for(subtests):
    for name in ["sonyflake", "cosid-second", "sentry"]:
        with subtests.test(name):
            clock = Clock()
            refusing, waiting = made(clock, format=name), made(clock, format=name, on_clock_back="wait")
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
    ids = made(clock, format="cosid-second")
    drawn = [ids.next_id()]
    clock.now += 0.9
    drawn.append(ids.next_id())
    clock.now -= 0.8

    assert ids.next_id() == drawn[1] + 1 == drawn[0] + 2


def test_one_made_right_after_another_of_the_same_worker_repeats_nothing():
    for name in ["sonyflake", "sentry"]:
        clock = Clock()

        assert distinct(made(clock, format=name).next_id() for _ in range(20)) == 20, name


def test_what_does_not_fit_is_refused(subtests):
    for wrong, sentence in [
        ({"format": "nope"}, "format must be one of snowflake, twitter"),
        ({"format": "meteor"}, "format must be one of snowflake, twitter"),
        ({"format": "discord:1/41/5"}, "must be 5 widths"),
        ({"format": 5}, "format must be one of"),
        ({"format": "discord", "worker": 1024}, "worker must be 0 to 1023, got 1024"),
        ({"format": "sonyflake", "worker": 65_536}, "worker must be 0 to 65535"),
        ({"format": "discord", "datacenter": 1}, "without layout and datacenter"),
        ({"format": "discord", "layout": Layout(sign=1, a=63)}, "without layout and datacenter"),
        ({"format": "cosid-second", "epoch": 1_800_000_000}, "epoch must not be in the future"),
    ]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match=sentence):
            made(Clock(), **wrong)


def test_a_format_that_has_ended_says_so():
    with pytest.raises(Exhausted, match=r"layout 1/28/22/13 ended at 2024-11-20 .*; choose a later epoch or more bits"):
        made(Clock(), format="uid-generator").next_id()


def test_an_id_with_another_version_is_not_likely_of_sentry():
    (read,) = inspect_id(4504409131515904 ^ 1 << 48, layout="sentry").readings

    assert (read.likely, read.why) == (False, "the version of such an id is always 16, not 17")
