"""The table of `docs/failover.md` says what the rule computes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.documents.pages import ROOT

from allocator import Tag
from allocator.rules.failover import PERIOD_MS, crossing

PAGE = (ROOT / "docs" / "failover.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| 10.*$", PAGE, re.MULTILINE)]
FAILOVERS = (0, 1, 10, 100)
UNITS = {"": 1, "million": 10**6, "billion": 10**9}
NOW = 1_800_000_000_000


def read(cell: str) -> list[float]:
    """The numbers of a cell such as `4.19 to 8.39 million`."""
    numbers, unit = re.fullmatch(r"([\d,. to]*\d) ?(\w*)", cell).groups()
    return [float(number.replace(",", "")) * UNITS[unit] for number in numbers.split(" to ")]


def after(given: int, failovers: int, idle_ms: int) -> int:
    """Where a tag stands that gave so many ids and failed over so often, each time after so long without a claim."""
    tag = Tag("order", given, claimed_at=NOW)
    for _ in range(failovers):
        skip = crossing(tag, NOW + idle_ms)
        tag = replace(tag, max_value=tag.max_value + skip, skipped=tag.skipped + skip, claimed_at=NOW)
    return tag.max_value


def test_the_page_has_the_table():
    assert [read(row[0]) for row in ROWS] == [[10], [10**4], [10**7], [10**10]]
    assert {len(row) for row in ROWS} == {1 + len(FAILOVERS)}


def test_a_cell_of_the_table_is_what_the_rule_gives():
    for row in ROWS:
        for column in range(len(FAILOVERS)):
            (given,) = map(int, read(row[0]))
            first, *last = read(row[1 + column])

            assert after(given, FAILOVERS[column], 0) == pytest.approx(first, rel=0.005), (row, column)
            assert after(given, FAILOVERS[column], PERIOD_MS - 1) == pytest.approx(*last or [first], rel=0.005), (
                row,
                column,
            )
