"""The mutants of `make mutants`, in short: all of them still apply, and a few are tried."""

from dataclasses import replace

import pytest
from support.servers.available import KINDS

from mutants.catalogue import ROOT, Mutant, NoLongerApplies, catalogue
from mutants.trial import BAD, KILLED, SURVIVED, TIMED_OUT, UNTRIED, judged, try_mutant

MUTANTS = catalogue()
SEGMENT = "allocator/schemes/segment_refill.py"
QUICK = ("tests/unit/schemes/test_slots.py",)


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and (not name or f"def {name}(" in (ROOT / file).read_text())


def faults(mutant: Mutant) -> list[str]:
    """What keeps a mutant from being tried."""
    found = [f"there is no {test}" for test in mutant.tests if not is_there(test)]
    if mutant.server not in ("", *KINDS):
        found.append(f"there is no server {mutant.server}")
    try:
        changed = mutant.source() != (ROOT / mutant.file).read_text()
    except (NoLongerApplies, OSError, SyntaxError) as error:
        return [*found, str(error)]
    return found if changed else [*found, "it changes nothing"]


def test_every_mutant_applies_and_names_tests_that_are_there():
    assert {mutant.name: found for mutant in MUTANTS if (found := faults(mutant))} == {}


def test_there_are_enough_of_them_and_each_is_one_of_its_own():
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 40
    assert len({(one.file, one.old, one.new) for one in MUTANTS}) == len(MUTANTS)


def test_the_first_is_really_killed():
    verdict = try_mutant(MUTANTS[0], {})

    assert verdict.outcome == KILLED, verdict
    assert verdict.by.startswith(MUTANTS[0].tests[0])


def test_control_a_change_that_breaks_nothing_survives():
    harmless = replace(MUTANTS[0], old="The next piece to serve", new="What is served next", file=SEGMENT, tests=QUICK)

    assert try_mutant(harmless, {}).outcome == SURVIVED


def test_a_mutant_whose_text_is_not_there_once_is_an_error():
    for old in ("no such text", "self"):
        with pytest.raises(NoLongerApplies, match="times in allocator/schemes/segment_refill.py, and must be once"):
            replace(MUTANTS[0], old=old, file=SEGMENT).source()


def test_a_package_that_cannot_be_used_is_no_kill():
    badly = replace(MUTANTS[0], old="NOTHING = range(0)", new="NOTHING = range(nobody)", file=SEGMENT, tests=QUICK)
    verdict = try_mutant(badly, {})

    assert verdict.outcome == BAD
    assert "name 'nobody' is not defined" in verdict.words


FAILED = {"test": "tests/unit/test_x.py::test_y", "when": "call", "error": "AssertionError", "words": "1 == 2"}
ENDINGS = [
    (0, "3 passed in 1 s", {}, SURVIVED),
    (0, "3 skipped in 1 s", {}, UNTRIED),
    (5, "no tests ran", {}, BAD),
    (2, "1 error during collection", {}, BAD),
    (1, "1 failed", FAILED, KILLED),
    (1, "1 error", FAILED | {"when": "setup"}, BAD),
    (1, "1 failed", FAILED | {"error": "NameError"}, BAD),
    (None, "", {}, TIMED_OUT),
]


def test_only_a_test_that_fails_by_itself_is_a_kill():
    assert [judged(*given)[0] for *given, _ in ENDINGS] == [outcome for *_, outcome in ENDINGS]
