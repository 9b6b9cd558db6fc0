from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from allocator.runtime.turns import Turns


def nobody() -> str:
    raise AssertionError("a run has done this already")


def fails() -> str:
    raise LookupError


def test_calls_that_waited_share_the_next_run_and_no_earlier_one():
    turns = Turns()
    first, during, later = turns.call(), [], []

    def work() -> str:
        during.extend([turns.call(), turns.call()])
        return "first"

    def again() -> str:
        later.append(turns.call())
        return "second"

    assert turns.run(first, work) == "first"
    assert turns.run(during[0], again) == "second"
    assert turns.run(during[1], nobody) is None
    assert turns.run(later[0], lambda: "third") == "third"


def test_those_that_waited_for_a_run_that_failed_run_at_once():
    turns = Turns()
    first, second, third = turns.call(), turns.call(), turns.call()

    with pytest.raises(LookupError):
        turns.run(first, fails)

    def work() -> str:
        return turns.run(third, lambda: "beside") or ""  # while this one runs

    assert turns.run(second, work) == "beside"
    assert turns.run(turns.call(), lambda: "alone") == "alone"


def test_a_run_within_a_run_does_the_work_of_no_other_call():
    turns = Turns()
    waits: list[int] = []

    def inner() -> str:
        waits.append(turns.call())
        return "inner"

    assert turns.run(turns.call(), lambda: turns.run(turns.call(), inner)) == "inner"
    assert turns.run(waits[0], lambda: "its own") == "its own"


def test_a_run_that_stands_holds_up_nobody_for_ever(monkeypatch):
    """As one that waits for the work of another call."""
    monkeypatch.setattr("allocator.runtime.turns.PATIENCE", 0.0)
    turns = Turns()

    def work() -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(turns.run, turns.call(), lambda: "beside").result(60) or ""

    assert turns.run(turns.call(), work) == "beside"
