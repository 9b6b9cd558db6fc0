"""What each change proves (`pytest --quick`, as in `make test`), and what is left to the night (`make nightly`).

A test on each database and with each face meets every database and every face, but not every pair: all below the
waiting is the same. Tests marked `statements` run on all four databases; the others, stories, on SQLite, PostgreSQL and
one of MySQL and MariaDB, by turns. Tests marked `nightly` are left out.

ALLOCATOR_TEST_TURN   mysql, mariadb or both, instead of the turn of the commit
ALLOCATOR_TEST_BASE   the commit that the change begins after; else, the newest one that is 12 hours older than HEAD
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

ROOT = Path(__file__).parents[2]
TURNS = ("mysql", "mariadb")
TAKES_BOTH = ("allocator/database/", "allocator/doctor/", "migrations/")
"""Where a change speaks to a database, it is tried on both."""
HOURS = 12


@dataclass(frozen=True)
class Case:
    """A test with its parameters: `values` are those that are texts, such as databases and faces."""

    name: str
    values: tuple[str, ...]
    marks: frozenset[str] = frozenset()


def left_out(cases: Sequence[Case], places: Sequence[str], faces: Sequence[str], turns: Collection[str]) -> set[int]:
    """The positions of the cases that are left to the night."""
    absent = set(TURNS) - set(turns)
    found = {at for at, case in enumerate(cases) if "nightly" in case.marks}
    found |= {at for at, case in enumerate(cases) if absent & {*case.values} and "statements" not in case.marks}
    return found | odd_pairs(cases, places, faces)


def odd_pairs(cases: Sequence[Case], places: Sequence[str], faces: Sequence[str]) -> set[int]:
    """Every second pair of a place and a face, where a test has several places."""
    tests: dict[Hashable, list[tuple[int, int, int]]] = defaultdict(list)
    for at, case in enumerate(cases):
        place, face = (next((few.index(one) for one in case.values if one in few), None) for few in (places, faces))
        if place is not None and face is not None:
            others = tuple(one for one in case.values if one not in (*places, *faces))
            tests[case.name, others].append((at, place, face))
    return {
        at
        for test, pairs in tests.items()
        for at, place, face in pairs
        if len({place for _, place, _ in pairs}) > 1 and (crc32(repr(test).encode()) + place + face) % 2
    }


def turn(head: str, changed: Iterable[str], forced: str = "") -> tuple[str, ...]:
    """Which of MySQL and MariaDB runs the stories. head: the commit, in hexadecimal digits; empty without git."""
    if forced not in ("", "both", *TURNS):
        raise ValueError(f"ALLOCATOR_TEST_TURN must be mysql, mariadb or both, got {forced!r}")
    if forced == "both" or (not forced and any(path.startswith(TAKES_BOTH) for path in changed)):
        return TURNS
    return (forced or TURNS[int(head[-1:] or "0", 16) % 2],)


def turn_of_this_change() -> tuple[str, ...]:
    head = git("rev-parse", "HEAD")
    return turn(head, git("diff", "--name-only", base()).splitlines(), os.environ.get("ALLOCATOR_TEST_TURN", ""))


def base() -> str:
    """The commit that this change begins after, which is HEAD itself where all is older."""
    if given := os.environ.get("ALLOCATOR_TEST_BASE"):
        return given
    before = int(git("show", "--no-patch", "--format=%ct", "HEAD") or 0) - HOURS * 3600
    return git("rev-list", "--max-count=1", f"--before={before}", "HEAD") or "HEAD"


def git(*words: str) -> str:
    """What git says, or nothing, as where the tests are not in a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
