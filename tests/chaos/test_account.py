"""The account of the chaos, held against accounts that are wrong: each fault is found, and counted exactly."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes.account import audited, merged, outside, overlap, runs_of, size
from support.processes.drawing import CLAIMED, DRAWN, FAILED, Account

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The account of one process more: its claims, and its blocks of ids."""
    numbers = iter(range(100))

    def write(claims: Sequence[tuple[int, int]], *blocks: Sequence[int], tag: str = "a") -> None:
        account = Account(str(tmp_path / f"account-{next(numbers)}"), ["a", "b"])
        for claim in claims:
            account.write(CLAIMED, tag, claim)
        for block in blocks:
            account.write(DRAWN, tag, block)

    return write


def test_a_sound_account(write, tmp_path):
    write([(1, 11), (21, 31)], range(1, 11), [21, 22, 23])
    write([(11, 21)], [11], [12], [13, 14])
    write([(1, 5)], range(1, 3), tag="b")
    found = audited(tmp_path, [40, 4])

    assert found.wrong == {}
    assert (found.ids, found.claims, found.claimed, found.left, found.unheard) == (19, 4, 34, 15, 10)


WRONG = [
    ([(21, 31)], [[21, 22, 21]], 50, {"duplicates": 1}),
    ([(5, 15)], [range(5, 15)], 50, {"duplicates": 6, "claimed_twice": 6}),
    ([(5, 15)], [[14]], 50, {"claimed_twice": 6}),
    ([(21, 31)], [[21, 31, 32]], 50, {"outside": 2}),
    ([(21, 31)], [[11]], 50, {"outside": 1}),
    ([], [[10]], 50, {"duplicates": 1, "outside": 1}),
    ([(21, 31)], [[21]], 27, {"lost": 3}),
    ([(21, 31)], [[21]], 0, {"lost": 20}),
]


def test_control_what_is_wrong_is_found(write, tmp_path):
    for claims, blocks, max_value, wrong in WRONG:
        write([(1, 11)], range(1, 11))
        write(claims, *blocks)

        assert audited(tmp_path, [max_value, 0]).wrong == wrong
        for path in tmp_path.iterdir():
            path.unlink()


def test_a_block_torn_by_the_kill_counts_as_far_as_it_goes(write, tmp_path):
    write([(1, 11)], [1, 2, 3, 4])
    write([(11, 21)], [11, 12])
    path = tmp_path / "account-0"
    path.write_bytes(path.read_bytes()[:-12])
    found = audited(tmp_path, [20, 0])

    assert (found.ids, found.wrong) == (4, {})


def test_calls_that_failed_are_counted(tmp_path):
    Account(str(tmp_path / "account-0"), ["a"]).write(FAILED, "a")

    assert audited(tmp_path, [0]).failed == 1


ids = st.lists(st.integers(1, 60), max_size=60)


@given(ids)
def test_runs_are_what_they_stand_for(drawn):
    runs = list(runs_of(array("q", drawn)))

    assert [one for start, stop in runs for one in range(start, stop)] == drawn


@given(ids)
def test_an_overlap_is_what_counting_says(drawn):
    runs = sorted(runs_of(array("q", drawn)))

    assert overlap(runs) == len(drawn) - len(set(drawn))
    assert size(merged(runs)) == len(set(drawn))


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_outside_is_none_where_the_claims_hold_all(drawn, claimed):
    runs, covers = list(runs_of(array("q", sorted(drawn)))), merged(runs_of(array("q", sorted(claimed))))

    assert (outside(runs, covers) == 0) == (drawn <= claimed)
