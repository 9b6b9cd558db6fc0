"""The parts of the night: all that is long is in one of them, and only what has not passed runs again."""

from __future__ import annotations

import yaml
from support.quick import ROOT
from tools.nightly import PARTS, Outcome, todo

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
