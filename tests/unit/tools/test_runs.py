"""What a retry forgives, and what it never does: by runs of pytest."""

from pathlib import Path

import pytest
from support.kit import python
from support.rules import RULES
from support.verdict import FINAL, MOST
from tools.ratchets import FILE, ROOT, formatted, lines, parsed, raised, words, wrong
from tools.rules import KINDS, PAGE, found, page

TESTS = Path(__file__).parents[2]
CONFTEST = """
from pathlib import Path
from support import verdict
verdict.KNOWN = Path(__file__).with_name("flaky.txt")
pytest_plugins = ["support.verdict"]
"""
STORY = f"""
import os, subprocess, sys
from pathlib import Path
import pytest

def once(name):
    path = Path(__file__).with_name(name)
    path.exists() or path.touch() or pytest.fail("late")

def test_flaky(): once("flaky")

@pytest.fixture
def set_up(): once("set up")

def test_set_up(set_up): pass

def test_wrong(): raise ValueError("wrong")

def test_twice():
    code = "from support.distinct import distinct; distinct([1, 1])"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_in_a_group(): raise ExceptionGroup("", [ExceptionGroup("", [type("Duplicate", (Exception,), {{}})("7")])])

def test_died(): os._exit(1)

def test_known(): once("known")

def test_then_skipped():
    if Path(__file__).with_name("skipped").exists(): pytest.skip("not now")
    once("skipped")

@pytest.mark.parametrize("number", range({MOST + 1}))
def test_many(number): once(f"many{{number}}")
"""


@pytest.mark.parametrize(
    ("options", "is_retried", "code", "why"),
    [
        (["twice"], False, FINAL, "an id came twice"),
        (["in_a_group"], False, FINAL, "an id came twice"),
        (["died"], False, FINAL, "its process died"),
        (["known"], False, FINAL, "was flaky before"),
        (["many"], False, FINAL, f"{MOST + 1} tests failed, and at most {MOST} are retried"),
        (["wrong", "--exitfirst", "--numprocesses", "0"], False, FINAL, "some tests did not run"),
        (["wrong"], True, 1, "ValueError: wrong"),
        (["then_skipped"], True, FINAL, "Skipped: not now"),
        (["flaky or set_up"], True, 0, "PASSED test_story.py::test_flaky\nPASSED test_story.py::test_set_up\n"),
    ],
)
def test_what_passes_by_itself_is_flaky_and_what_fails_again_is_red_and_some_is_never_retried(
    tmp_path, options, is_retried, code, why
):
    texts = {"test_story.py": STORY, "conftest.py": CONFTEST, "flaky.txt": "\ntest_story.py::test_known # why"}
    for name, text in {**texts, "pytest.ini": "[pytest]"}.items():
        (tmp_path / name).write_text(text)
    env = {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ("--retry", "-p", "xdist", "--numprocesses", "1", "-k", *options)
    said = python("import sys, pytest; sys.exit(pytest.main())", *words, cwd=tmp_path, env=env)

    assert (said.code, "A retry" in said.out, "FLAKY" in said.out) == (code, is_retried, code == 0), said.out
    assert why in said.out


# -- the numbers that may only fall, judged by plain texts


def test_what_is_counted():
    assert lines("# why\n\na = [\n    1,\n \n]\n") == 4
    assert words('{"docs": [{"text": "<p>Two words</p>"}, {"text": "three"}]}') == 3


def test_a_number_that_rose_and_one_that_fell_unnoticed_are_wrong():
    allowed = {"lines.tests": 1000, "tests.items": 100}

    assert [*wrong(allowed, {"lines.tests": 1000, "tests.items": 99})] == []
    assert [*wrong(allowed, {"lines.tests": 1001, "tests.items": 98, "lines.new": 1})] == [
        "lines.new: 1, and may be 0",
        "lines.tests: 1001, and may be 1000",
        "tests.items fell from 100 to 98: make ratchets RATCHETS=--write",
    ]


def test_a_number_is_raised_with_a_reason_in_a_commit():
    before, after = {"lines.tests": 1, "tests.items": 1}, {"lines.tests": 2, "tests.items": 1, "words.site": 5}

    assert [*raised(before, after, "More tests\n\nRaises tests.items: no")] == [
        "lines.tests rises from 1 to 2, and no commit says 'Raises lines.tests: why'"
    ]
    assert [*raised(before, after, "More tests\n\nRaises lines.tests: a story of MySQL 9.6")] == []


def test_the_file_is_written_as_it_is_read():
    text = (ROOT / FILE).read_text()

    assert formatted(parsed(text)) == text


# -- each rule of the promise has a test, a world, a control and a mutant, and tests/RULES.md says which


def test_each_rule_has_a_test_a_world_a_control_and_a_mutant():
    proofs = found()

    assert [(number, kind) for number in RULES for kind in KINDS if not proofs[number, kind]] == []


def test_the_page_is_what_the_marks_say():
    assert PAGE.read_text() == page(found()), "run: PYTHONPATH=tests python -m tools.rules"
