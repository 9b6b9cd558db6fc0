"""What a retry forgives, and what it never does: by runs of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.quick import ROOT
from support.verdict import FINAL, MOST, names
from tools.nightly import PARTS, Outcome, todo

TESTS = Path(__file__).parents[2]
CONFTEST = """
from support.verdict import Verdict, add_option as pytest_addoption
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Verdict({"test_story.py::test_known"}, config.getoption("--no-skips")))
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


@pytest.fixture
def retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the tests of the story whose names have a word. Returns the exit code, and what was said."""
    (tmp_path / "test_story.py").write_text(STORY)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(word: str, *options: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "tools.retry", "-p", "xdist", "-k", word, *options]
        done = subprocess.run(
            words, check=False, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.returncode, done.stdout

    return run


def test_what_passes_by_itself_is_flaky(retried):
    code, said = retried("flaky or set_up", "--numprocesses", "1")

    assert code == 0, said
    assert said.endswith(":\ntest_story.py::test_flaky\ntest_story.py::test_set_up\n")


def test_what_fails_again_or_is_skipped_then_is_red(retried):
    for word, why in (("wrong", "ValueError: wrong"), ("then_skipped", "was skipped: Skipped: not now")):
        code, said = retried(word)
        assert (code > 0, "A retry" in said, why in said, "FLAKY" in said) == (True, True, True, False), said


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("twice", "an id came twice"),
        ("in_a_group", "an id came twice"),
        ("died", "its process died"),
        ("known", "was flaky before"),
        ("many", f"{MOST + 1} tests failed, and at most {MOST} are retried"),
    ],
)
def test_never_retried(retried, word, why):
    code, said = retried(word, "--numprocesses", "1")

    assert (code, "A retry" in said) == (FINAL, False), said
    assert why in said


def test_where_not_all_ran_nothing_is_retried(retried, tmp_path):
    assert retried("wrong", "--exitfirst")[0] == FINAL
    (tmp_path / "test_other.py").write_text("import nowhere")
    code, said = retried("flaky", "--numprocesses", "1")
    assert (code > 0, "A retry" in said, "could not be collected" in said) == (True, False, True), said


def test_the_list_has_one_test_a_line():
    listed = "# a comment\n\ntests/a.py::b[x #1] # 2026-11-26: waits for the event\ntests/c.py::d\n"

    assert names(listed) == {"tests/a.py::b[x #1]", "tests/c.py::d"}


# -- the parts of the night: all that is long is in one of them, and only what has not passed runs again


WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"


def test_every_long_run_and_every_quick_test_is_in_one_part():
    words = [word for command in PARTS.values() for word in command if word.startswith("tests/")]
    soaks = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "endurance").glob("test_*.py")}
    folders = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}

    assert sorted(word for word in words if word.endswith(".py")) == sorted(soaks)
    assert {word for word in words if not word.endswith(".py")} == folders - {"tests/endurance"}
    assert yaml.safe_load(WORKFLOW.read_text())["jobs"]["part"]["strategy"]["matrix"]["part"] == [*PARTS]


def test_a_run_is_taken_up_where_it_was_ended():
    first, second, third, *others = PARTS
    outcomes = {
        first: Outcome("passed", 1, "abc", ""),
        second: Outcome("FAILED", 1, "abc", ""),
        third: Outcome("passed", 1, "an older one", ""),
    }

    assert todo(outcomes, "abc") == [second, third, *others]
    assert todo({first: Outcome("passed", 1, "", "")}, "") == [*PARTS]  # a tree with changes is no commit
