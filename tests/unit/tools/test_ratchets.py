"""The numbers that may only fall, judged by plain texts."""

from __future__ import annotations

from support.quick import ROOT
from tools.ratchets import FILE, formatted, parsed, raised, tokens, words, wrong
from tools.shapes import knots, lines, names, sizes
from tools.walks import Call, moves, without_loops


def test_what_is_counted():
    dense, wide = "a = [1, 2]\n", "# why\n\na = [\n    1,\n    2\n]\n"

    assert (lines(dense), lines(wide)) == (1, 5)
    assert tokens(dense) == tokens(wide) == 7
    assert tokens('a = f"{b + c}" + d') == 5
    assert words({"docs": [{"text": "<p>Two words</p>"}, {"text": "three"}]}) == 3


def test_how_long_functions_and_modules_are():
    found = sizes({"p.a": "def f():\n    a = 1\n\n    return a\n", "p.b": "x = 1\n", "p": ""})

    assert found == {"function-median": 3, "function-p90": 3, "module-median": 3, "module-p90": 3}


def test_a_circle_of_late_imports_is_a_knot_and_one_of_types_is_none():
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.room import a\n"
    late = "def f():\n    from p.room import a\n"
    filled_in = "def f(name):\n    return import_module(f'p.{name}.a')\n"

    assert knots({"p.room.a": "import p.room.b", "p.room.b": types}) == {}
    assert knots({"p.room.a": "from p.hall import b", "p.hall.b": late, "p.hall.c": late}) == {"room": 1, "hall": 1}
    assert knots({"p.room.a": "import p.room.b", "p.room.b": filled_in}) == {"room": 2}


def test_names_are_counted_once_whichever_class_has_them():
    class One:
        given: int
        both = _private = 1

    class Two(One):
        both = 2

        def own(self) -> None: ...

    assert names(One, Two) == {"given", "both", "own"}


def test_a_walk_counts_a_loop_once_and_the_moves_of_each_thread():
    a, b, other = Call(1, "a.py", "f", 1), Call(1, "b.py", "g", 1), Call(2, "c.py", "h", 1)

    assert without_loops([a, other, a, a, b, other, a]) == [a, other, b, a]
    assert moves([a, other, b, other, a]) == 2


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
