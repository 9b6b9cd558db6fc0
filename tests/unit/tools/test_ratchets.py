"""The numbers that may only fall, judged by plain texts."""

from __future__ import annotations

from support.quick import ROOT
from tools.ratchets import FILE, formatted, lines, parsed, raised, tokens, words, wrong


def test_what_is_counted():
    dense, wide = "a = [1, 2]\n", "# why\n\na = [\n    1,\n    2\n]\n"

    assert (lines(dense), lines(wide)) == (1, 5)
    assert tokens(dense) == tokens(wide) == 7
    assert tokens('a = f"{b + c}" + d') == 5
    assert words({"docs": [{"text": "<p>Two words</p>"}, {"text": "three"}]}) == 3


def test_a_number_that_rose_and_one_that_fell_unnoticed_are_wrong():
    allowed = {"lines.tests": 1000, "tests.items": 100}

    assert wrong(allowed, {"lines.tests": 1000, "tests.items": 99}) == []
    assert wrong(allowed, {"lines.tests": 1001, "tests.items": 98}) == [
        "lines.tests: 1001, and may be 1000",
        "tests.items fell from 100 to 98: make ratchets RATCHETS=--write",
    ]
    assert wrong({}, {"lines.new": 1}) == ["lines.new: 1, and may be 0"]
    assert wrong({"lines.tests": 9, "seconds.ci": 600}, {}) == [
        "lines.tests fell from 9 to 0: make ratchets RATCHETS=--write"
    ]


def test_a_number_is_raised_with_a_reason_in_a_commit():
    before, after = {"lines.tests": 1, "tests.items": 1}, {"lines.tests": 2, "tests.items": 1, "words.site": 5}

    assert raised(before, after, "More tests\n\nRaises tests.items: no") == [
        "lines.tests rises from 1 to 2, and no commit says 'Raises lines.tests: why'"
    ]
    assert raised(before, after, "More tests\n\nRaises lines.tests: a story of MySQL 9.6") == []


def test_the_file_is_written_as_it_is_read():
    text = (ROOT / FILE).read_text()

    assert formatted(parsed(text)) == text
