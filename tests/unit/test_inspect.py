"""Ids taken apart."""

from __future__ import annotations

from uuid import UUID, uuid1, uuid4

import pytest

from allocator import InvalidId, InvalidSetting, Meteor, ObjectId, Snowflake, inspect_id
from allocator.schemes.inspect import inspect

NOW = 1_780_000_000.0


def reading(value: object, scheme: str, **settings):
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


@pytest.mark.parametrize(
    ("text", "version", "year"),
    [("0190163d-8694-739b-aea5-966c26f8ad91", 7, 2024), ("1EC9414C-232A-6B00-B3C8-9F6BDECED846", 6, 2022)]
    + [(str(uuid1(node=1, clock_seq=2)), 1, None), (str(uuid4()), 4, None), (uuid4().hex, 4, None)],
    ids=["7", "6", "1", "4", "4-hex"],
)
def test_of_a_uuid_version_and_time_are_named(text, version, year):
    found = inspect(text, NOW).readings[0]

    assert (found.scheme, found.fields["version"]) == ("uuid", version)
    assert (found.time is not None) == (version in {1, 6, 7})
    assert year is None or found.time.year == year


def test_the_older_layout_of_an_objectid():
    found = reading("4df2dcec2cdcd20936a8b817", "objectid-machine")

    assert (found.fields["machine"], found.fields["pid"]) == ("2cdcd2", 0x0936)


@pytest.mark.parametrize(
    "wrong",
    [0, -5, 2**63, 10**5000, "", "x", "a" * 23, "g" * 24, True, None, 1.5, b"1", "1" * 40],
    ids=lambda wrong: "huge" if wrong == 10**5000 else ascii(wrong)[:20],
)
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(InvalidId, match="an id is"):
        inspect_id(wrong)


def test_a_scheme_that_does_not_fit_is_refused():
    with pytest.raises(InvalidId, match="no id of the scheme uuid"):
        inspect_id(5, scheme="uuid")
    with pytest.raises(InvalidSetting, match="scheme must be one of"):
        inspect_id(5, scheme="nope")
    assert inspect_id(UUID(int=5, version=4)).readings[0].scheme == "uuid"
