"""The rules that keep the promise, and the mark that says which of them a test proves; see `tests/RULES.md`."""

import pytest

RULES = {
    1: "A range is used only after its COMMIT returned success without a warning; anything else burns it.",
    2: "Memory changes only after the commit.",
    3: "A claim is one statement and one round trip.",
    4: "A claim runs on a connection of our own, never in the caller's session.",
    5: "The size is a parameter of the statement, never a column read in another one.",
    6: "A guard in the statement holds the limit.",
    7: "A row below what a process has seen is refused, and stops the tag.",
    8: "On another server run a claim leaves a gap, or is refused.",
    9: "Auto-increment values are used only after the commit, from tables whose rows are never deleted.",
    10: "Clocks decide availability, never uniqueness.",
    11: "A forked child owns nothing; an allocator cannot be copied.",
    12: "Nothing is slept, logged, called or read under a lock.",
}


def rule(*numbers: int) -> pytest.MarkDecorator:
    """Marks a test that proves these rules; one called `test_control…` breaks them, and shows what it finds."""
    assert RULES.keys() >= {*numbers}
    return pytest.mark.rule(*numbers)
