"""Who claimed what: entries, settings, and when a ledger that fails is left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan

import pytest

from allocator import InvalidSetting, LedgerSettings
from allocator.schemes.lane import ALL, Lane
from allocator.schemes.ledger import LEFT_ALONE, MOMENT, SWEEP_EVERY, Author, Entry, Standing

ME = Author("here", 42, "1")


def test_an_entry_knows_its_ids_and_its_time():
    assert Entry("order", 1000, 2000, ALL, ME, 0).ids == range(1001, 2001)
    assert Entry("order", 1000, 2000, ALL, ME, 86_400).claimed_at == datetime(1970, 1, 2, tzinfo=UTC)


def test_an_entry_of_a_shard_has_those_of_its_lane_alone():
    ids = Entry("order", 1000, 1030, Lane(2, 3), ME, 0).ids

    assert ids == range(1001, 1031, 3)
    assert len(ids) == 10
    assert all(number % 3 == 2 for number in ids)


@pytest.mark.parametrize("days", [0, -1, 36_501, nan, inf, True, "90"])
def test_days_are_checked_with_the_number_in_the_sentence(days):
    with pytest.raises(InvalidSetting, match="keep_days must be"):
        LedgerSettings(days).checked()


def test_required_is_yes_or_no():
    with pytest.raises(InvalidSetting, match="required must be True or False, got 'no'"):
        LedgerSettings(required="no").checked()


def test_one_that_failed_is_left_alone_for_a_while():
    standing = Standing(100.0)
    assert standing.is_trusted(100.0)
    standing.failed(200.0)

    assert not standing.is_trusted(200.0 + LEFT_ALONE - 1)
    assert standing.is_trusted(200.0 + LEFT_ALONE)


def test_it_is_swept_at_once_and_then_once_in_a_while():
    standing = Standing(100.0)

    assert [standing.begins_sweep(now) for now in (100.0, 100.0, 99.0 + SWEEP_EVERY, 100.0 + SWEEP_EVERY)] == [
        True,
        False,
        False,
        True,
    ]


def test_one_that_took_its_time_is_left_alone_for_a_moment_and_no_longer():
    standing = Standing(100.0)
    standing.paused(200.0)
    assert not standing.is_trusted(200.0)
    assert standing.is_trusted(200.0 + MOMENT)

    standing.failed(300.0)
    standing.paused(300.0)
    assert not standing.is_trusted(300.0 + MOMENT)
