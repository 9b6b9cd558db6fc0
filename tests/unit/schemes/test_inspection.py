"""Bit layouts, and the pure cores that use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid1, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.distinct import distinct
from support.documents.pages import ROOT
from support.memory.wall_clock import NOW, Clock

from allocator import Meteor, MeteorSettings, ObjectId, Snowflake, SnowflakeSettings, inspect_id
from allocator.errors import ClockWentBack, InvalidId, InvalidSetting
from allocator.schemes.formats.bit_layout import TICKS, Layout
from allocator.schemes.formats.id_inspection import FORMATS, inspect, inspection_to_json
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    cuts = sorted(draw(st.sets(st.integers(2, 63), min_size=1, max_size=6)))
    edges = [1, *cuts, 64]
    return Layout(sign=1, **{f"f{n}": b - a for n, (a, b) in enumerate(pairwise(edges))})


@settings(max_examples=60)
@given(layouts(), st.integers(0, 2**63 - 1))
def test_pack_and_unpack_are_inverse(layout: Layout, number: int):
    assert layout.pack(**layout.unpack(number)) == number


def test_masks_and_shifts_follow_from_the_widths():
    assert [METEOR.shift(name) for name in METEOR.widths] == [63, 34, 14, 3, 0]
    assert METEOR.limit("node") == 1_048_575
    assert str(METEOR) == "1/29/20/11/3"
    assert Layout(sign=1, a=63) != Layout(sign=1, b=63)


def test_a_layout_that_does_not_add_up_is_refused(subtests):
    for widths, sentence in [
        ({"sign": 1, "a": 62}, "the widths of a layout must add up to 64, got 1 \\+ 62 = 63"),
        ({"sign": 1, "a": 64}, "the width of a must be 1 to 63, got 64"),
        ({"a": 64}, "must be 1 to 63"),
        ({"a": 63, "sign": 1}, "must begin with sign=1"),
        ({"sign": 1, "a": 63, "b": 0}, "the width of b must be 1 to 63, got 0"),
        ({"sign": 1, "a": True, "b": 62}, "whole number"),
        ({}, "got 0 = 0"),
    ]:
        with subtests.test(widths=widths), pytest.raises(InvalidSetting, match=sentence):
            Layout(**widths)


def test_a_value_out_of_its_field_is_refused():
    for values, sentence in (
        ({"node": 1 << 20}, "node must be 0 to 1048575, got 1048576"),
        ({"nope": 1}, "has no field"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            METEOR.pack(**values)
    with pytest.raises(InvalidId, match="an id must be"):
        METEOR.unpack(1 << 63)


# -- the formats of others, read as they publish them; and what `Snowflake` makes by a layout of its caller


JAVASCRIPT = Layout(sign=11, timestamp=41, datacenter=1, worker=5, sequence=6)
OWN = [SNOWFLAKE, JAVASCRIPT, Layout(sign=1, timestamp=43, datacenter=3, worker=8, sequence=9)]


def made(clock: Clock, **settings) -> Snowflake:
    return Snowflake(clock=clock, sleep=clock.sleep, **settings)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)


def sonyflake(begin: datetime, at: datetime, machine: int, sequence: int) -> int:
    """By its `Compose(time, sequence, machine)`: elapsed << 24 | sequence << 16 | machine, in units of 10 ms."""
    return (at - begin) // timedelta(milliseconds=10) << 24 | sequence << 16 | machine


MADE = 1_800_000_000.0
"""After all of these ids."""
AT = utc(2026, 1, 2, 3, 4, 5, 670_000)
VECTORS = [
    # Wikipedia, "Snowflake ID": a tweet of machine 01 0111 1010.
    (
        "snowflake",
        1541815603606036480,
        utc(2022, 6, 28, 16, 7, 40, 105_000),
        {"datacenter": 0b01011, "worker": 0b11010, "sequence": 0},
    ),
    # Discord's API reference: internal worker 1, process 0, increment 7.
    ("discord", 175928847299117063, utc(2016, 4, 30, 11, 18, 25, 796_000), {"worker": 1, "process": 0, "increment": 7}),
    # Media of Instagram, of which the times are known by themselves.
    ("instagram", 2384288897814875714, utc(2020, 8, 26, 13, 43, 27, 313_000), {"shard": 2675, "sequence": 578}),
    ("instagram", 2383568809444681765, utc(2020, 8, 25, 13, 52, 46, 90_000), {"shard": 2474, "sequence": 37}),
    # The README of tsid-creator: getTime 9153062458, getRandom 305516.
    (
        "tsid",
        9153062458 << 22 | 305516,
        utc(2020, 4, 15, 22, 31, 2, 458_000),
        {"node": 305516 >> 12, "counter": 305516 & 4095},
    ),
    # Computed from the published layouts.
    ("sonyflake", sonyflake(utc(2014, 9, 1), AT, 40_000, 200), AT, {"machine": 40_000, "sequence": 200}),
]


@pytest.mark.parametrize(("name", "published", "at", "fields"), VECTORS)
def test_an_id_is_read_as_the_original_makes_it(name, published, at, fields):
    (read,) = inspect(published, MADE, layout=name).readings

    assert (read.scheme, read.likely) == (name, True)
    assert fields.items() <= read.fields.items()
    assert FORMATS[name].layout.pack(**read.fields) == published
    assert timedelta() <= at - read.time < timedelta(seconds=1)


@pytest.mark.parametrize("layout", OWN)
def test_ids_of_a_layout_are_unique_and_in_order_and_a_tick_has_as_many_as_its_sequence(layout):
    clock, size = Clock(), 1 << layout.widths["sequence"]
    own = {"datacenter": layout.limit("datacenter"), "worker": layout.limit("worker") - 1}
    ids = made(clock, layout=layout, **own)
    count = min(2 * size + 2, 20_000)
    drawn = [ids.next_id() for _ in range(count)]
    start = int(NOW * 1000) + 1 - EPOCH

    assert distinct(drawn)
    assert sorted(drawn) == drawn
    assert layout.unpack(drawn[0]) == {"timestamp": start, "sequence": 0, **own}
    later, sequence = divmod(count - 1, size)
    assert layout.unpack(drawn[-1]) == {"timestamp": start + later, "sequence": sequence, **own}
    (read,) = inspect_id(drawn[-1], layout=layout).readings
    assert read.time.timestamp() == pytest.approx(clock.now, abs=0.0011)


def test_ids_for_javascript_are_below_2_to_the_53():
    last = JAVASCRIPT.pack(**{field: JAVASCRIPT.limit(field) for field in JAVASCRIPT.widths if field != "sign"})

    assert last == JAVASCRIPT_MAX_ID
    with pytest.raises(InvalidId, match="an id must be 0 to 9007199254740991, got 9007199254740992"):
        inspect_id(2**53, layout=JAVASCRIPT)


@pytest.mark.parametrize("layout", OWN)
def test_a_clock_that_goes_back_is_refused_or_waited_for(layout):
    clock = Clock()
    refusing, waiting = made(clock, layout=layout), made(clock, layout=layout, on_clock_back="wait")
    first = [refusing.next_id(), waiting.next_id()]
    clock.now = NOW - 5.0
    with pytest.raises(ClockWentBack, match="the clock went back by 50[0-9]{2} ms, to 2026-09-21 14:13:1"):
        refusing.next_id()
    second = waiting.next_id()

    assert second > first[1]
    assert clock.now >= NOW
    assert refusing.next_id() > first[0]


def test_a_clock_that_goes_back_within_a_tick_costs_nothing():
    clock = Clock()
    ids = made(clock)
    drawn = [ids.next_id()]
    clock.now += 0.0006
    drawn.append(ids.next_id())
    clock.now -= 0.0004

    assert ids.next_id() == drawn[1] + 1 == drawn[0] + 2


def test_what_does_not_fit_is_refused(subtests):
    fields = "datacenter=…, worker=…, sequence=…, in this order"
    for wrong, sentence in [
        *(({"layout": FORMATS[other].layout}, fields) for other in ("discord", "meteor")),
        ({"layout": "discord"}, "layout must be a Layout of sign=…"),
        ({"layout": OWN[2], "worker": 256}, "worker must be 0 to 255, got 256"),
        ({"datacenter": 32}, "datacenter must be 0 to 31"),
        ({"epoch": 1_900_000_000_000}, "epoch must not be in the future"),
        *(({"epoch": epoch}, "epoch must") for epoch in (10**13, -1)),
        *(({"worker": worker}, "worker must be") for worker in (-1, None)),
        ({"on_clock_back": "hope"}, "on_clock_back must be"),
    ]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match=sentence):
            made(Clock(), **wrong)


def test_every_format_is_named_in_the_reference():
    page = (ROOT / "docs" / "reference.md").read_text().partition("### Formats by name")[2]

    assert [name for name in FORMATS if name != "meteor" and f"`{name}`" not in page] == []


# -- ids taken apart


LATER = 1_780_000_000.0


def reading(value: object, scheme: str | None, **settings):
    (found,) = inspect(value, LATER, scheme, **settings).readings
    return found


def test_what_a_generator_made_is_read_back():
    for id_, scheme, fields in [
        (Meteor(node=77, second=1000).next_id(), "meteor", {"node": 77, "second": 1000}),
        (Snowflake(5, 6).next_id(), "snowflake", {"datacenter": 5, "worker": 6}),
    ]:
        (found,) = inspect_id(id_, scheme=scheme).readings
        assert fields.items() <= found.fields.items()
        assert found.likely
    made = ObjectId()
    assert inspect_id(made).readings[0].time == made.generation_time == inspect_id(str(made)).readings[0].time


def test_every_scheme_that_fits_is_given_the_likely_ones_first_and_what_speaks_against_one_is_said():
    found = inspect(5016762319896585, LATER).readings
    assert [(r.scheme, r.likely) for r in found] == [("meteor", True), ("snowflake", True), ("segment", True)]
    assert [r.scheme for r in inspect(17, LATER).readings] == ["segment", "meteor", "snowflake"]
    assert "never 7" in reading(5016762319896585 | 7, "meteor").why
    assert "in the future" in reading(2**63 - 1, "snowflake").why
    assert "2020-12-10 00:00:00+00:00, the first of the epoch" in reading(17, "meteor").why


def test_of_a_uuid_version_and_time_are_named():
    for text, version, year in [
        ("0190163d-8694-739b-aea5-966c26f8ad91", 7, 2024),
        ("{0190163d-8694-739b-aea5-966c26f8ad91}", 7, 2024),
        ("urn:uuid:0190163d-8694-739b-aea5-966c26f8ad91", 7, 2024),
        ("1EC9414C-232A-6B00-B3C8-9F6BDECED846", 6, 2022),
        (str(uuid1(node=1, clock_seq=2)), 1, None),
        (str(uuid4()), 4, None),
        (uuid4().hex, 4, None),
    ]:
        found = inspect(text, LATER).readings[0]

        assert (found.scheme, found.fields["version"]) == ("uuid", version), text
        assert (found.time is not None) == (version in {1, 6, 7}), text
        assert year is None or found.time.year == year, text


def test_the_older_layout_of_an_objectid():
    fields = reading("4df2dcec2cdcd20936a8b817", "objectid-machine").fields

    assert (fields["machine"], fields["pid"]) == ("2cdcd2", 0x0936)


def test_what_is_no_id_is_refused(subtests):
    for wrong in [0, -5, 2**63, 10**23, 10**5000, "", "x", "a" * 23, "g" * 24, True, None, 1.5, b"1", "1" * 40]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidId, match="an id is"):
            inspect_id(wrong)


def test_a_scheme_that_does_not_fit_is_refused():
    with pytest.raises(InvalidId, match="is not an id of the scheme uuid"):
        inspect_id(5, scheme="uuid")
    with pytest.raises(InvalidSetting, match="scheme must be one of"):
        inspect_id(5, scheme="nope")
    assert inspect_id(UUID(int=5, version=4)).readings[0].scheme == "uuid"
    json = inspection_to_json(inspect_id(5016762319896585, scheme="meteor"))
    assert json["readings"][0]["time"] == "2020-12-13T09:06:54+00:00"


def test_a_format_counts_from_its_epoch():
    for layout, widths, begin in [
        ("snowflake", "1/41/5/5/12", "2010-11-04T01:42:54.657"),
        ("discord", "1/41/5/5/12", "2015-01-01T00:00:00.000"),
        ("instagram", "1/40/13/10", "2011-08-24T21:07:01.721"),
        ("tsid", "1/41/10/12", "2020-01-01T00:00:00.000"),
        ("sonyflake", "1/39/8/16", "2014-09-01T00:00:00.000"),
    ]:
        form = FORMATS[layout]
        middle = dict.fromkeys(list(form.layout.widths)[2:], 1)
        (first,) = inspect(form.layout.pack(**{form.clock: 0}, **middle), LATER, layout=layout).readings
        (later,) = inspect(form.layout.pack(**{form.clock: 100}, **middle), LATER, layout=layout).readings

        assert str(form.layout) == widths, layout
        assert first.time.isoformat(timespec="milliseconds").removesuffix("+00:00") == begin, layout
        assert (first.likely, "the first" in first.why) == (False, True), layout
        assert (later.time - first.time).total_seconds() * 1000 == 100 * TICKS[form.clock], layout
        assert later.fields == {form.clock: 100, **middle}, layout


def test_an_id_of_own_widths_is_likely_under_them_alone():
    layout = Layout(sign=1, timestamp=41, datacenter=3, worker=2, sequence=17)
    made = Snowflake(5, 3, layout=layout).next_id()
    (found,) = inspect_id(made, layout=layout).readings
    usual = [one.scheme for one in inspect_id(made).readings if one.likely]

    assert (found.scheme, found.likely, found.fields["datacenter"], found.fields["worker"]) == ("snowflake", True, 5, 3)
    assert "snowflake" in usual, "else this test shows nothing: the usual layout takes the id for one of its own"
    meteors = Layout(sign=1, second=31, node=18, sequence=11, random=3)
    assert inspect_id(Meteor(node=5, layout=meteors).next_id(), layout=meteors, scheme="meteor").readings[0].likely


def test_what_is_no_layout_is_refused(subtests):
    for wrong in ("nope", "", 5, Layout(sign=1, a=63), b"discord", "Discord", "meteor:1/29/20/11/3"):
        with subtests.test(wrong=wrong), pytest.raises(InvalidSetting, match="layout"):
            inspect_id(5016762319896585, layout=wrong)


def test_a_layout_is_of_numbers_and_of_one_scheme():
    for other in (ObjectId(), "0190163d-8694-739b-aea5-966c26f8ad91", "x", None, 1.5, True):
        with pytest.raises(InvalidId, match="is not an id of the scheme discord"):
            inspect_id(other, layout="discord")
    with pytest.raises(InvalidSetting, match="belongs to scheme discord, not meteor"):
        inspect_id(5, layout="discord", scheme="meteor")
    with pytest.raises(InvalidId, match="an id is 1 to"):
        inspect_id(2**63, layout="discord")


def test_a_tsid_is_read():
    """The README of tsid-ts: 501438102971408389 is written 0DXBQ9H279R05; O is read as 0."""
    for text in ["0DXBQ9H279R05", "0dxbq9h279r05", "ODXBQ9H279RO5"]:
        (found,) = inspect(text, LATER).readings

        assert (found.scheme, found.likely, found.fields["number"]) == ("tsid", True, "501438102971408389"), text
        assert reading(501438102971408389, None, layout="tsid").time == found.time, text


def test_thirteen_digits_are_a_number_and_may_be_a_tsid():
    schemes = {one.scheme for one in inspect("0123456789012", LATER).readings}
    assert schemes == {"meteor", "snowflake", "segment", "tsid"}
    assert reading("0123456789012", "tsid").scheme == "tsid"
    assert not reading("1700000000000", "tsid").likely
    assert "tsid" not in {one.scheme for one in inspect("9999999999999", LATER).readings}


def test_a_ulid_is_read_up_to_the_greatest():
    """As the specification says: its example; 7ZZZ… is of the time 2 ** 48 - 1, and what is greater is refused."""
    for text in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "OIARZ3NDEKTSV4RRFFQ69G5FAV"]:
        found = reading(text, None)

        assert (found.scheme, found.fields["random"]) == ("ulid", "d6764c61efb99302bd5b"), text
        assert found.time == datetime(2016, 7, 30, 23, 54, 10, 259_000, tzinfo=UTC), text
    assert reading("7" + "Z" * 25, "ulid").fields["timestamp"] == 2**48 - 1
    for wrong in ("8" + "0" * 25, "0" + "U" * 25, "8" + "Z" * 12, "0" + "U" * 12):
        with pytest.raises(InvalidId, match="an id is a number"):
            inspect(wrong, LATER)


def test_the_first_id_at_a_time_is_the_inverse_of_inspect():
    noon = datetime(2026, 11, 28, 12, 0, 0, 7000, UTC)
    sonyflake = FORMATS["sonyflake"]
    for form, scheme, tick in (
        (SnowflakeSettings(), "snowflake", timedelta(milliseconds=1)),
        (sonyflake, sonyflake.layout, timedelta(milliseconds=10)),
        (MeteorSettings(), "meteor", timedelta(seconds=1)),
    ):
        first = form.first_id_at(noon)
        known = {"scheme": scheme} if isinstance(scheme, str) else {"layout": scheme}
        reading, before = (inspect(id_, 0.0, epoch=form.epoch, **known).readings[0] for id_ in (first, first - 1))

        assert reading.time <= noon < reading.time + tick
        assert before.time == reading.time - tick
        assert form.first_id_at(noon.replace(tzinfo=None)) == first
        assert form.first_id_at(datetime(1999, 1, 1, tzinfo=UTC)) == 0
        with pytest.raises(InvalidSetting, match="must be 0 to"):
            form.first_id_at(datetime(9999, 1, 1, tzinfo=UTC))
        with pytest.raises(InvalidSetting, match="the time must be a datetime, got int"):
            form.first_id_at(5)
