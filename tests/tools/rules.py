"""Which tests prove each rule of the promise: `python -m tools.rules` writes `tests/RULES.md` from their marks."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mutants.catalogue import catalogue
from simulation.controls import CONTROLS
from support.rules import RULES

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "RULES.md"
KINDS = ("test", "world", "control", "mutant")
"""A world is of the simulator; a control breaks the rule and shows the harm; a mutant is the code with a fault."""
SIMULATED = {
    1: (
        "adopting a range of which nobody knows",
        "giving a range back",
        "a warning at the commit ignored",
        "a transaction that was left open ignored",
        "an answer before the commit",
    ),
    2: ("memory before the commit",),
    3: ("SELECT, then UPDATE",),
    6: ("the limit guard off",),
    7: ("the guard of what was seen off",),
    8: (
        "the failover guard off",
        "a gap of nothing",
        "a new tag with the key of the server that it reaches",
        "a key for each move",
        "claim: the row's move and claim: the row's run",
    ),
    9: ("a node without a fence",),
    10: ("a lease that does not end", "a sequence that starts over", "taken at its end, and not a length later"),
    11: ("no renewal after a fork",),
}
"""Names of the simulator's controls."""
BROKEN = re.compile(r"\b\d+(?=(?: and \d+)*: )")
"""The rules that a mutant names, as in "8 and 9: a node number is never given twice"."""
Found = dict[tuple[int, str], list[str]]


def marked() -> Iterator[tuple[int, str, str]]:
    """Each test that is marked: its rule, its kind and its place."""
    for path in sorted(TESTS.rglob("test_*.py")):
        place = str(path.relative_to(TESTS))
        for node in ast.parse(path.read_text()).body:
            for number in numbers_of(node):
                name = node.name  # type: ignore[attr-defined]
                is_world = place.startswith("simulation/")
                kind = "control" if name.startswith("test_control") else "world" if is_world else "test"
                yield number, kind, f"{place}::{name}"


def numbers_of(node: ast.AST) -> list[int]:
    """The rules that a test is marked with."""
    calls = [each for each in getattr(node, "decorator_list", []) if isinstance(each, ast.Call)]
    return [ast.literal_eval(arg) for each in calls if ast.unparse(each.func) == "rule" for arg in each.args]


def found() -> Found:
    """By rule and kind."""
    proofs: Found = defaultdict(list)
    for number, kind, place in marked():
        proofs[number, kind].append(place)
    known = {one.name for one in CONTROLS}
    for number, names in SIMULATED.items():
        assert known >= {*names}
        proofs[number, "control"] += [f"simulation/controls.py: {name}" for name in names]
    for one in catalogue():
        for number in BROKEN.findall(one.rule):
            proofs[int(number), "mutant"].append(one.name)
    return proofs


def page(proofs: Found) -> str:
    lines = ["# The rules of the promise, and what proves them", "", "Written by `python -m tools.rules`.", ""]
    for number, words in RULES.items():
        lines += [f"## {number}. {words}", ""]
        for kind in KINDS[:-1]:
            lines += [f"- {kind}: `{one}`" for one in proofs[number, kind]]
        mutants = proofs[number, "mutant"]
        lines += [f"- mutants ({len(mutants)}): {'; '.join(mutants)}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(found()))
