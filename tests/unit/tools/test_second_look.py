"""What a second look forgives, and what it never does; by plain failures, and by one run of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.failures import Failure
from tools.second_look import MOST, hopeless, judged, names

TESTS = Path(__file__).parents[2]
LATE = "E   TimeoutError: late"


def failed(*tests: str) -> dict[str, Failure]:
    return {test: Failure(test, LATE) for test in tests}


def test_what_passes_alone_is_flaky_and_printed_with_its_traceback():
    lines, green = judged(failed("a", "b"), again=(), known=())

    assert green
    assert lines[:4] == ["FLAKY: a", f"    {LATE}", "FLAKY: b", f"    {LATE}"]
    assert lines[-2:] == ["a", "b"]


def test_what_fails_again_or_was_flaky_before_is_red():
    assert judged(failed("a", "b"), again={"b"}, known=())[1] is False
    assert judged(failed("a", "b"), again=(), known={"a"}) == (
        [
            "FLAKY again, and to be mended: it is in tests/flaky.txt: a",
            "FLAKY: b",
            f"    {LATE}",
            "Add to tests/flaky.txt and mend now (CONTRIBUTING.md, Flaky tests):",
            "b",
        ],
        False,
    )


def test_there_is_no_second_look_where_an_id_came_twice_a_process_died_or_much_failed():
    for words in ("E   support.distinct.Duplicate: 7 came 2 times", "child: Violation: 7 of order was given twice"):
        assert "an id came twice" in hopeless({**failed("a"), "b": Failure("b", words)})
    assert "died in b" in hopeless({**failed("a"), "b": Failure("b", "worker 'gw0' crashed", crashed=True)})
    assert hopeless(failed(*map(str, range(MOST)))) == ""
    assert hopeless(failed(*map(str, range(MOST + 1)))) == "6 tests failed, and at most 5 are looked at again"


def test_the_list_has_one_test_a_line():
    listed = ["# a comment", "", "tests/a.py::b[x #1] # 2026-11-26: waits for the event", "tests/c.py::d"]

    assert names(listed) == {"tests/a.py::b[x #1]", "tests/c.py::d"}


STORY = """
from pathlib import Path
from support.distinct import distinct
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
    once_twice = Path(__file__).with_name("twice")
    values = [1] if once_twice.exists() else [1, 1]
    once_twice.touch()
    distinct(values)
"""


def look(folder: Path, only: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_story.py").write_text(STORY)
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = [
        sys.executable,
        "-m",
        "tools.second_look",
        "-p",
        "no:cacheprovider",
        "-k",
        only,
        *arguments,
        "test_story.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_run(tmp_path: Path):
    code, said = look(tmp_path, "flaky or set_up", "-p", "xdist", "--numprocesses", "2")
    assert (code, said.count("FLAKY: test_story.py::test_")) == (0, 2), said

    code, said = look(tmp_path, "wrong")
    assert (code, "FAILED twice: test_story.py::test_wrong" in said) == (1, True), said

    code, said = look(tmp_path, "twice")
    assert (code, "No second look: an id came twice" in said) == (1, True), said
