"""What a retry forgives, and what it never does; by plain records, and by runs of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.distinct import Duplicate
from tools.failures import Failure, Record, says_twice
from tools.second_look import MOST, hopeless, judged, main, names

TESTS = Path(__file__).parents[2]
LATE = "E   TimeoutError: late"


def failed(*tests: str) -> Record:
    return Record(1, {test: Failure(LATE) for test in tests})


def test_what_passes_by_itself_is_flaky_and_printed_with_its_traceback():
    lines, green = judged(failed("a", "b"), Record(0, passed=["a", "b"]), known=())

    assert green
    assert lines[:4] == ["FLAKY: a", f"    {LATE}", "FLAKY: b", f"    {LATE}"]
    assert lines[-2:] == ["a", "b"]


def test_what_fails_again_or_is_skipped_or_was_flaky_before_is_red():
    assert judged(failed("a", "b"), Record(1, {"b": Failure(LATE)}, ["a"]), known=())[1] is False
    assert judged(failed("a", "b"), Record(1, {"b": Failure("in its tear-down")}, ["a", "b"]), known=())[1] is False
    assert judged(failed("a"), Record(0), known=()) == (["FAILED, and did not pass at its retry: a"], False)
    assert judged(failed("a", "b"), Record(0, passed=["a", "b"]), known={"a"}) == (
        [
            "FLAKY again, and to be mended: it is in tests/flaky.txt: a",
            "FLAKY: b",
            f"    {LATE}",
            "Add to tests/flaky.txt and mend now (CONTRIBUTING.md, Flaky tests):",
            "b",
        ],
        False,
    )


def test_nothing_is_retried_where_an_id_came_twice_a_process_died_or_much_failed():
    twice, died = Failure(LATE) | Failure("x", twice=True), Failure("x", crashed=True) | Failure(LATE)

    assert "an id came twice" in hopeless(Record(1, {"a": Failure(LATE), "b": twice}))
    assert "died in b" in hopeless(Record(1, {"a": Failure(LATE), "b": died}))
    assert hopeless(Record(1, {"a": Failure(LATE)}, incomplete=["b could not be collected"])).endswith("collected")
    assert hopeless(failed(*map(str, range(MOST)))) == ""
    assert hopeless(failed(*map(str, range(MOST + 1)))) == "6 tests failed, and at most 5 are retried"


def test_a_duplicate_is_found_in_a_group_of_errors():
    group = ExceptionGroup("of threads", [ValueError(), ExceptionGroup("", [Duplicate("7 came 2 times")])])

    assert says_twice(group)
    assert not says_twice(ExceptionGroup("", [ValueError("Duplicate")]))


def test_the_list_has_one_test_a_line():
    listed = ["# a comment", "", "tests/a.py::b[x #1] # 2026-11-26: waits for the event", "tests/c.py::d"]

    assert names(listed) == {"tests/a.py::b[x #1]", "tests/c.py::d"}


STORY = """
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
    path = Path(__file__).with_name("twice")
    if not path.exists():
        path.touch()
        subprocess.run([sys.executable, "-c", code], check=True)

def test_then_skipped():
    path = Path(__file__).with_name("skipped")
    path.exists() and pytest.skip("not now")
    once("skipped")
"""


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_story.py").write_text(STORY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").touch()  # pytest has to tell whose it is
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path


def test_runs(story: Path, capfd: pytest.CaptureFixture[str]):
    """The runs of pytest are processes; of `second_look` itself one is, for its exit code."""
    in_a_worker = ("-p", "xdist", "--numprocesses", "1")
    assert main(["-k", "flaky or set_up", *in_a_worker]) == 0
    said = capfd.readouterr().out
    assert said.count("FLAKY: test_story.py::test_") == 2, said

    words = [sys.executable, "-m", "tools.second_look", "-k", "wrong or skipped"]
    assert subprocess.run(words, check=False).returncode == 1
    said = capfd.readouterr().out
    assert said.count("FAILED, and did not pass at its retry: test_story.py::test_") == 2, said

    assert main(["-k", "twice", "--capture=fd"]) == 1
    said = capfd.readouterr().out
    assert "Not retried: an id came twice" in said, said

    (story / "test_other.py").write_text("import nowhere")
    (story / "flaky").unlink()
    assert main(["-k", "flaky", *in_a_worker]) == 1
    said = capfd.readouterr().out
    assert "could not be collected" in said, said
