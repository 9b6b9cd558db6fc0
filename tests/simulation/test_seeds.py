"""Two hundred and fifty worlds: no promise is broken in any of them, and everything that can happen has happened."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from support.rules import rule

from simulation import run
from simulation.fates import Fate
from simulation.plan import LOSSES, PROCESSES, SERVERS

EACH = 25
PARTS = range(10)
MUST = {
    *({*PROCESSES, *SERVERS, *LOSSES} - {"clock", "interrupt", "stall", "start"}),  # which are counted by what they do
    *(f"a statement was {fate}" for fate in Fate if fate is not Fate.WELL),
    "blocks",
    "burnt by their reason",
    "claims committed",
    "claims that ended late",
    "clocks set back",
    "clocks set forward",
    "commits forgotten",
    "ended with AllocatorClosed",
    "ended with Exhausted",
    "ended with NodeIdsExhausted",
    "ended with NotCopyable",
    "interrupted between calls",
    "interrupted in a call",
    "gaps skipped",
    "meteors",
    "snowflake alones",
    "snowflakes",
    "tags repaired",
    "threads stalled",
    "went on",
    "AllocatorClosed",
    "ClockWentBack",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "Exhausted",
    "InvalidCount",
    "MaxValueWentBack",
    "NodeIdsExhausted",
    "ServerReplaced",
}
"""Each of these must have been reached a few times, in all worlds together."""
TIMES = 3


@cache
def worlds(part: int) -> Counter[str]:
    return run.worlds(range(part * EACH, (part + 1) * EACH))


@rule(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
@pytest.mark.parametrize("part", PARTS)
def test_no_world_breaks_a_promise(part: int):
    assert worlds(part)


def test_every_fault_was_reached():
    assert rare(sum((worlds(part) for part in PARTS), Counter[str]())) == {}


def rare(counts: Counter[str]) -> dict[str, int]:
    return {what: counts[what] for what in MUST if counts[what] < TIMES}


def test_a_world_that_was_not_reached_is_told():
    with pytest.raises(AssertionError, match="went on"):
        assert rare(Counter(dict.fromkeys(MUST - {"went on"}, TIMES))) == {}
