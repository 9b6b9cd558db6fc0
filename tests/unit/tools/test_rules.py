"""Each rule of the promise has a test, a world, a control and a mutant, and tests/RULES.md says which."""

from __future__ import annotations

from support.rules import RULES
from tools.rules import KINDS, PAGE, found, page


def test_each_rule_has_a_test_a_world_a_control_and_a_mutant():
    proofs = found()

    assert [(number, kind) for number in RULES for kind in KINDS if not proofs[number, kind]] == []


def test_the_page_is_what_the_marks_say():
    assert PAGE.read_text() == page(found()), "run: PYTHONPATH=tests python -m tools.rules"
