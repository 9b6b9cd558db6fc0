"""Ids taken apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid1, uuid4

import pytest

from allocator import Layout, Meteor, ObjectId, Snowflake, inspect_id
from allocator.errors import InvalidId, InvalidSetting
from allocator.schemes.formats.bit_layout import TICKS
from allocator.schemes.formats.id_inspection import inspect, inspection_to_json
from allocator.schemes.formats.known_formats import FORMATS

NOW = 1_780_000_000.0


def reading(value: object, scheme: str | None, **settings):
    (found,) = inspect(value, NOW, scheme, **settings).readings
    return found


def test_what_a_generator_made_is_read_back():
    meteor = inspect_id(Meteor(node=77, second=1000).next_id(), scheme="meteor").readings[0]
    snowflake = inspect_id(Snowflake(5, 6).next_id(), scheme="snowflake").readings[0]
    made = ObjectId()

    assert (meteor.fields["node"], meteor.fields["second"], meteor.likely) == (77, 1000, True)
    assert (snowflake.fields["datacenter"], snowflake.fields["worker"], snowflake.likely) == (5, 6, True)
    assert inspect_id(made).readings[0].time == made.generation_time == inspect_id(str(made)).readings[0].time


def test_every_scheme_that_fits_is_given_and_the_likely_ones_first():
    found = inspect(5016762319896585, NOW).readings
    assert [(r.scheme, r.likely) for r in found] == [("meteor", True), ("snowflake", True), ("segment", True)]
    assert [r.scheme for r in inspect(17, NOW).readings] == ["segment", "meteor", "snowflake"]


def test_what_speaks_against_a_reading_is_said():
    assert "never 7" in reading(5016762319896585 | 7, "meteor").why
    assert "in the future" in reading(2**63 - 1, "snowflake").why
    assert "first second of the epoch" in reading(17, "meteor").why


def test_a_number_is_never_taken_for_hex_digits():
    with pytest.raises(InvalidId):
        inspect(10**23, NOW)


def test_a_uuid_may_be_written_in_its_other_ways():
    for written in ("{%s}", "urn:uuid:%s"):
        assert inspect(written % "0190163d-8694-739b-aea5-966c26f8ad91", NOW).readings[0].scheme == "uuid"


def test_an_epoch_may_be_given():
    assert reading(1541815603606036480, "snowflake", epoch=0).time.year == 1981


def test_of_a_uuid_version_and_time_are_named():
    for text, version, year in [
        ("0190163d-8694-739b-aea5-966c26f8ad91", 7, 2024),
        ("1EC9414C-232A-6B00-B3C8-9F6BDECED846", 6, 2022),
        (str(uuid1(node=1, clock_seq=2)), 1, None),
        (str(uuid4()), 4, None),
        (uuid4().hex, 4, None),
    ]:
        found = inspect(text, NOW).readings[0]

        assert (found.scheme, found.fields["version"]) == ("uuid", version), (text, version)
        assert (found.time is not None) == (version in {1, 6, 7}), (text, version)
        assert year is None or found.time.year == year, (text, version)


def test_the_older_layout_of_an_objectid():
    found = reading("4df2dcec2cdcd20936a8b817", "objectid-machine")

    assert (found.fields["machine"], found.fields["pid"]) == ("2cdcd2", 0x0936)


def test_what_is_no_id_is_refused(subtests):
    for wrong in [0, -5, 2**63, 10**5000, "", "x", "a" * 23, "g" * 24, True, None, 1.5, b"1", "1" * 40]:
        with subtests.test(wrong=wrong), pytest.raises(InvalidId, match="an id is"):
            inspect_id(wrong)


def test_a_scheme_that_does_not_fit_is_refused():
    with pytest.raises(InvalidId, match="is not an id of the scheme uuid"):
        inspect_id(5, scheme="uuid")
    with pytest.raises(InvalidSetting, match="scheme must be one of"):
        inspect_id(5, scheme="nope")
    assert inspect_id(UUID(int=5, version=4)).readings[0].scheme == "uuid"


# -- formats of others: each with an id that they publish


def test_an_id_that_others_publish_is_read_by_their_format():
    for layout, value, fields, time in [
        # Wikipedia, "Snowflake ID": a tweet of June 28, 2022 16:07:40.105 UTC, machine 01 0111 1010.
        (
            "twitter",
            1541815603606036480,
            {"timestamp": 367597485448, "datacenter": 0b01011, "worker": 0b11010, "sequence": 0},
            "2022-06-28T16:07:40.105",
        ),
        # Discord's API reference.
        (
            "discord",
            175928847299117063,
            {"timestamp": 41944705796, "worker": 1, "process": 0, "increment": 7},
            "2016-04-30T11:18:25.796",
        ),
        # Media of Instagram, of which the time is known by itself: 2020-08-26T13:43:27Z and 2020-08-25T13:52:46Z.
        ("instagram", 2384288897814875714, {"shard": 2675, "sequence": 578}, "2020-08-26T13:43:27.313"),
        ("instagram", 2383568809444681765, {"shard": 2474, "sequence": 37}, "2020-08-25T13:52:46.090"),
        # The README of tsid-creator: getTime 9153062458, getRandom 305516.
        (
            "tsid",
            9153062458 << 22 | 305516,
            {"timestamp": 9153062458, "node": 305516 >> 12, "counter": 305516 & 4095},
            "2020-04-15T22:31:02.458",
        ),
    ]:
        (found,) = inspect(value, NOW, layout=layout).readings

        assert (found.scheme, found.likely) == (layout, True), (layout, value)
        assert {name: found.fields[name] for name in fields} == fields, (layout, value)
        assert found.time.isoformat(timespec="milliseconds").removesuffix("+00:00") == time, (layout, value)
        assert FORMATS[layout].layout.pack(**found.fields) == value, (layout, value)


def test_an_id_of_uid_generator_with_the_widths_of_its_readme():
    """{"UID": "180363646902239241", "timestamp": "2017-01-19 12:15:46", "workerId": "4", "sequence": "9"}.

    Its sample sets 29/21/13 and the epoch 2016-09-20; both times are of China, eight hours ahead.
    """
    midnight = int(datetime(2016, 9, 20, tzinfo=timezone(timedelta(hours=8))).timestamp())
    expected = datetime(2017, 1, 19, 12, 15, 46, tzinfo=timezone(timedelta(hours=8)))
    own = Layout(sign=1, second=29, worker=21, sequence=13)
    for layout in ("baidu:1/29/21/13", own):
        (found,) = inspect(180363646902239241, NOW, layout=layout, epoch=midnight).readings
        assert (found.scheme, found.time, found.likely) == ("baidu", expected, True)
        assert (found.fields["worker"], found.fields["sequence"]) == (4, 9)
    # The default widths make another worker of it, so that they are not what the id was made with.
    assert reading(180363646902239241, None, layout="baidu", epoch=midnight).time != expected


def test_a_format_counts_from_its_epoch():
    for layout, widths, begin in [
        ("twitter", "1/41/5/5/12", "2010-11-04T01:42:54.657"),
        ("discord", "1/41/5/5/12", "2015-01-01T00:00:00.000"),
        ("instagram", "1/40/13/10", "2011-08-24T21:07:01.721"),
        ("tsid", "1/41/10/12", "2020-01-01T00:00:00.000"),
        ("baidu", "1/28/22/13", "2016-05-19T16:00:00.000"),
        ("sonyflake", "1/39/8/16", "2014-09-01T00:00:00.000"),
        ("sonyflake-v2", "1/39/8/16", "2025-01-01T00:00:00.000"),
        ("cosid", "1/41/10/12", "2019-12-24T16:00:00.000"),
        ("cosid-second", "1/31/10/22", "2019-12-24T16:00:00.000"),
    ]:
        form = FORMATS[layout]
        middle = dict.fromkeys(list(form.layout.widths)[2:], 1)
        (first,) = inspect(form.layout.pack(**{form.clock: 0}, **middle), NOW, layout=layout).readings
        (later,) = inspect(form.layout.pack(**{form.clock: 100}, **middle), NOW, layout=layout).readings

        assert str(form.layout) == widths, layout
        assert first.time.isoformat(timespec="milliseconds").removesuffix("+00:00") == begin, layout
        assert (first.likely, "the first" in first.why) == (False, True), layout
        assert (later.time - first.time).total_seconds() * 1000 == 100 * TICKS[form.clock][0], layout
        assert later.fields == {form.clock: 100, **middle}, layout


def test_a_sonyflake_counts_hundredths_of_a_second():
    """By its `Compose(time, sequence, machine)`: elapsed << 24 | sequence << 16 | machine."""
    at = datetime(2026, 1, 2, 3, 4, 5, 670_000, tzinfo=UTC)
    elapsed = (at - datetime(2014, 9, 1, tzinfo=UTC)) // timedelta(milliseconds=10)
    found = reading(elapsed << 24 | 200 << 16 | 40_000, None, layout="sonyflake")

    assert (found.time, found.fields["sequence"], found.fields["machine"]) == (at, 200, 40_000)


def test_a_friendly_id_of_cosid():
    """Their parser reads "20230317123456789-1-2" as 12:34:56.789 of that day, machine 1, sequence 2."""
    at = datetime(2023, 3, 17, 12, 34, 56, 789_000, tzinfo=UTC)
    since = (at - datetime(2019, 12, 24, 16, tzinfo=UTC)) // timedelta(milliseconds=1)
    found = reading(since << 22 | 1 << 12 | 2, None, layout="cosid")

    assert (found.time, found.fields["machine"], found.fields["sequence"]) == (at, 1, 2)


def test_an_id_of_own_widths_is_likely_under_them_alone():
    layout = Layout(sign=1, timestamp=41, datacenter=3, worker=2, sequence=17)
    made = Snowflake(5, 3, layout=layout).next_id()
    (found,) = inspect_id(made, layout=layout).readings
    usual = [one.scheme for one in inspect_id(made).readings if one.likely]

    assert (found.scheme, found.likely, found.fields["datacenter"], found.fields["worker"]) == ("snowflake", True, 5, 3)
    assert "snowflake" in usual, "else this test shows nothing: the usual layout takes the id for one of its own"
    assert inspect_id(made, layout="snowflake:1/41/3/2/17").readings == (found,)
    meteors = Layout(sign=1, second=31, node=18, sequence=11, random=3)
    assert inspect_id(Meteor(node=5, layout=meteors).next_id(), layout=meteors, scheme="meteor").readings[0].likely


def test_what_is_no_layout_is_refused(subtests):
    widths = ["meteor:", "meteor:1/29/20/11", "meteor:1/29/20/11/4", "baidu:a/b/c/d", "discord:1/41/5/5/12/"]
    for wrong in widths + ["nope", "", 5, Layout(sign=1, a=63), b"baidu", "Baidu", "meteor:" + "9" * 5000]:
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
        (found,) = inspect(text, NOW).readings

        assert (found.scheme, found.likely, found.fields["number"]) == ("tsid", True, "501438102971408389"), text
        assert reading(501438102971408389, None, layout="tsid").time == found.time, text
        assert reading(text, None, layout="tsid:1/41/6/16").fields["counter"] == 501438102971408389 & 0xFFFF, text


def test_thirteen_digits_are_a_number_and_may_be_a_tsid():
    assert {one.scheme for one in inspect("0123456789012", NOW).readings} == {"meteor", "snowflake", "segment", "tsid"}
    assert [one.scheme for one in inspect("0123456789012", NOW, scheme="tsid").readings] == ["tsid"]
    assert not reading("1700000000000", "tsid").likely
    assert "tsid" not in {one.scheme for one in inspect("9999999999999", NOW).readings}


def test_a_ulid_is_read():
    """The example of its specification."""
    for text in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "OIARZ3NDEKTSV4RRFFQ69G5FAV"]:
        found = reading(text, None)

        assert (found.scheme, found.fields["random"]) == ("ulid", "d6764c61efb99302bd5b"), text
        assert found.time == datetime(2016, 7, 30, 23, 54, 10, 259_000, tzinfo=UTC), text


def test_the_greatest_ulid_and_no_greater_one():
    """As the specification says, 7ZZZ… is of the time 2 ** 48 - 1, and what is greater is refused."""
    assert reading("7" + "Z" * 25, "ulid").fields["timestamp"] == 2**48 - 1
    for wrong in ("8" + "0" * 25, "0" + "U" * 25, "8" + "Z" * 12, "0" + "U" * 12):
        with pytest.raises(InvalidId, match="an id is a number"):
            inspect(wrong, NOW)


def test_an_inspection_says_its_times_as_text():
    found = inspection_to_json(inspect_id(5016762319896585, scheme="meteor"))

    assert found["readings"][0]["time"] == "2020-12-13T09:06:54+00:00"
