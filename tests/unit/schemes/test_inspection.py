"""Bit layouts, and the pure cores that use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.distinct import distinct
from support.documents.pages import ROOT
from support.memory.wall_clock import NOW, Clock

from allocator import Meteor, MeteorSettings, ObjectId, Snowflake, SnowflakeSettings, inspect_id
from allocator.errors import InvalidId, InvalidSetting
from allocator.schemes.formats.bit_layout import Layout
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
        ({"a": 63, "sign": 1}, "must begin with sign=1"),
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


def ticks(begin: datetime, **tick: int) -> int:
    """Since the epoch of a format until `AT`."""
    return (AT - begin) // timedelta(**tick)


LATER = 1_800_000_000.0
"""After all of these ids."""
AT = utc(2026, 1, 2, 3, 4, 5, 670_000)
RFC_9562 = utc(2022, 2, 22, 19, 22, 22)
KNOWN = [
    # Wikipedia, "Snowflake ID": a tweet of machine 01 0111 1010.
    ("snowflake", 1541815603606036480, utc(2022, 6, 28, 16, 7, 40, 105_000), {"datacenter": 11, "worker": 26}),
    # Discord's API reference: internal worker 1, process 0, increment 7.
    ("discord", 175928847299117063, utc(2016, 4, 30, 11, 18, 25, 796_000), {"worker": 1, "process": 0, "increment": 7}),
    # Media of Instagram, of which the times are known by themselves.
    ("instagram", 2384288897814875714, utc(2020, 8, 26, 13, 43, 27, 313_000), {"shard": 2675, "sequence": 578}),
    ("instagram", 2383568809444681765, utc(2020, 8, 25, 13, 52, 46, 90_000), {"shard": 2474, "sequence": 37}),
    # The README of tsid-creator: getTime 9153062458, getRandom 305516; and that of tsid-ts, where O is read as 0.
    ("tsid", 9153062458 << 22 | 305516, utc(2020, 4, 15, 22, 31, 2, 458_000), {"node": 74, "counter": 2412}),
    *(
        ("tsid", text, utc(2023, 10, 15, 16, 56, 0, 17_000), {"number": "501438102971408389"})
        for text in ("0DXBQ9H279R05", "0dxbq9h279r05", "ODXBQ9H279RO5")
    ),
    # Computed from the published layouts and epochs.
    ("sonyflake", ticks(utc(2014, 9, 1), milliseconds=10) << 24 | 7 << 16 | 9, AT, {"machine": 9, "sequence": 7}),
    # The specification of ULID, and RFC 9562.
    *(
        ("ulid", text, utc(2016, 7, 30, 23, 54, 10, 259_000), {"random": "d6764c61efb99302bd5b"})
        for text in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "OIARZ3NDEKTSV4RRFFQ69G5FAV")
    ),
    ("uuid", "C232AB00-9414-11EC-B3C8-9F6BDECED846", RFC_9562, {"version": 1}),
    ("uuid", "{1EC9414C-232A-6B00-B3C8-9F6BDECED846}", None, {"version": 6}),
    ("uuid", "urn:uuid:017F22E2-79B0-7CC3-98C4-DC0C0C07398F", RFC_9562, {"version": 7}),
    ("uuid", "919108f752d143209bacf847db4148a8", None, {"version": 4}),
    ("uuid", UUID(int=5, version=4), None, {"version": 4}),
    # The layout before 2018, which is read when it is asked for.
    ("objectid-machine", "4df2dcec2cdcd20936a8b817", utc(2011, 6, 11, 3, 11, 40), {"machine": "2cdcd2", "pid": 0x0936}),
]


def reading(value: object, scheme: str | None, **settings):
    (found,) = inspect(value, LATER, scheme, **settings).readings
    return found


@pytest.mark.parametrize(("name", "published", "at", "fields"), KNOWN)
def test_an_id_is_read_as_the_original_makes_it(name, published, at, fields):
    is_layout = isinstance(published, int)
    read = reading(published, None, layout=name) if is_layout else reading(published, name)

    assert (read.scheme, read.likely) == (name, True)
    assert fields.items() <= read.fields.items()
    assert not is_layout or FORMATS[name].layout.pack(**read.fields) == published
    assert read.time == at or timedelta() <= at - read.time < timedelta(seconds=1)


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


def test_what_is_no_id_is_refused(subtests):
    for wrong in [0, -5, 2**63, 10**23, 10**5000, "", "x", "a" * 23, "g" * 24, True, None, 1.5, b"1", "1" * 40]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidId, match="an id is"):
            inspect_id(wrong)


def test_a_scheme_that_does_not_fit_is_refused():
    with pytest.raises(InvalidId, match="is not an id of the scheme uuid"):
        inspect_id(5, scheme="uuid")
    with pytest.raises(InvalidSetting, match="scheme must be one of"):
        inspect_id(5, scheme="nope")
    json = inspection_to_json(inspect_id(5016762319896585, scheme="meteor"))
    assert json["readings"][0]["time"] == "2020-12-13T09:06:54+00:00"


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


def test_thirteen_digits_are_a_number_and_may_be_a_tsid():
    schemes = {one.scheme for one in inspect("0123456789012", LATER).readings}
    assert schemes == {"meteor", "snowflake", "segment", "tsid"}
    assert reading("0123456789012", "tsid").scheme == "tsid"
    assert not reading("1700000000000", "tsid").likely
    assert "tsid" not in {one.scheme for one in inspect("9999999999999", LATER).readings}


def test_a_text_beyond_the_greatest_of_its_format_is_refused():
    """As the specification of ULID says: 7ZZZ… is of the time 2 ** 48 - 1."""
    assert reading("7" + "Z" * 25, "ulid").fields["timestamp"] == 2**48 - 1
    for wrong in ("8" + "0" * 25, "0" + "U" * 25, "8" + "Z" * 12, "0" + "U" * 12):
        with pytest.raises(InvalidId, match="an id is a number"):
            inspect(wrong, LATER)


def test_the_first_id_at_a_time_is_the_inverse_of_inspect():
    noon = utc(2026, 11, 28, 12, 0, 0, 7000)
    for form, name, tick in (
        (SnowflakeSettings(), "snowflake", timedelta(milliseconds=1)),
        (FORMATS["sonyflake"], "sonyflake", timedelta(milliseconds=10)),
        (MeteorSettings(), "meteor", timedelta(seconds=1)),
    ):
        first = form.first_id_at(noon)
        at, before = (reading(id_, None, layout=name).time for id_ in (first, first - 1))

        assert at <= noon < at + tick
        assert before == at - tick
        assert form.first_id_at(noon.replace(tzinfo=None)) == first
        assert form.first_id_at(utc(1999, 1, 1)) == 0
        for wrong, words in ((utc(9999, 1, 1), "must be 0 to"), (5, "the time must be a datetime, got int")):
            with pytest.raises(InvalidSetting, match=words):
                form.first_id_at(wrong)
