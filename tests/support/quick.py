"""What each change proves (`pytest --quick`, as in `make test`), and what is left to the night (`make nightly`).

A test on each database and with each face meets every database and every face, but not every pair: all below the
waiting is the same. Tests marked `statements` run on all four databases; the others, stories, on SQLite, PostgreSQL and
one of MySQL and MariaDB, by turns. Tests marked `nightly` are left out.

ALLOCATOR_TEST_TURN   mysql, mariadb or both, instead of the turn of the commit
ALLOCATOR_TEST_BASE   the commit that the change begins after; else, the newest one that is 12 hours older than HEAD
"""

import os
import subprocess
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
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
    return found | odd_pairs({at: case for at, case in enumerate(cases) if at not in found}, places, faces)


def odd_pairs(cases: Mapping[int, Case], places: Sequence[str], faces: Sequence[str]) -> set[int]:
    """Every second pair of a place and a face, where a test has several of both."""
    tests: dict[Hashable, list[tuple[int, str, str]]] = defaultdict(list)
    for at, case in cases.items():
        place, face = (next((one for one in case.values if one in few), None) for few in (places, faces))
        if place is not None and face is not None:
            others = tuple(one for one in case.values if one not in (*places, *faces))
            tests[case.name, others].append((at, place, face))
    found: set[int] = set()
    for test, pairs in tests.items():
        mine = sorted({place for _, place, _ in pairs}, key=places.index)
        if len(mine) > 1 and len({face for *_, face in pairs}) > 1:
            first = crc32(repr(test).encode())
            found |= {at for at, place, face in pairs if (first + mine.index(place) + faces.index(face)) % 2}
    return found


def turn(head: str, changed: Iterable[str], forced: str = "") -> tuple[str, ...]:
    """Which of MySQL and MariaDB runs the stories: both, where nobody knows what changed.

    head: the commit, in hexadecimal digits; empty outside of git.
    """
    if forced not in ("", "both", *TURNS):
        raise ValueError(f"ALLOCATOR_TEST_TURN must be mysql, mariadb or both, got {forced!r}")
    if forced in TURNS:
        return (forced,)
    if forced or not head or any(path.startswith(TAKES_BOTH) for path in changed):
        return TURNS
    return (TURNS[int(head[-1], 16) % 2],)


def turn_of_this_change() -> tuple[str, ...]:
    head = git("rev-parse", "HEAD")
    changed = git("diff", "--name-only", base()).splitlines() if head else ()
    return turn(head, changed, os.environ.get("ALLOCATOR_TEST_TURN", ""))


def base() -> str:
    """The commit that this change begins after: HEAD itself where all is older, or in a clone of one commit."""
    given = os.environ.get("ALLOCATOR_TEST_BASE", "").strip("0")  # GitHub's name for no commit
    if given and not git("rev-parse", "--verify", "--quiet", f"{given}^{{commit}}"):
        raise ValueError(f"ALLOCATOR_TEST_BASE must be a commit of this clone, got {given!r}")
    before = int(git("show", "--no-patch", "--format=%ct", "HEAD")) - HOURS * 3600
    return given or git("rev-list", "--first-parent", "--max-count=1", f"--before={before}", "HEAD") or "HEAD"


def git(*words: str) -> str:
    """What git says, or nothing, as where the tests are not in a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
