"""What each change proves (`pytest --quick`, as in `make test`), and what is left to the night (`make nightly`).

Tests marked `statements` run on all four databases; the others, stories, on SQLite, PostgreSQL and one of MySQL and
MariaDB, by turns. Tests marked `nightly` are left out.

ALLOCATOR_TEST_TURN   mysql, mariadb or both, instead of the turn of the commit
ALLOCATOR_TEST_BASE   the commit that the change begins after; else, the newest one that is 12 hours older than HEAD
"""

import os
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TURNS = ("mysql", "mariadb")
TAKES_BOTH = ("allocator/database/", "allocator/doctor/", "migrations/")
"""Where a change speaks to a database, it is tried on both."""
HOURS = 12


def is_left_out(values: Iterable[str], marks: Collection[str], turns: Collection[str]) -> bool:
    """Whether a test is left to the night. values: its parameters that are texts, such as its database."""
    absent = {*TURNS} - {*turns}
    return "nightly" in marks or ("statements" not in marks and not absent.isdisjoint(values))


def turn(head: str, changed: Iterable[str], forced: str = "") -> tuple[str, ...]:
    """Which of MySQL and MariaDB runs the stories: both, where nobody knows what changed.

    head: the commit, in hexadecimal digits; empty outside of git.
    """
    if forced:
        return {"both": TURNS, "mysql": ("mysql",), "mariadb": ("mariadb",)}[forced]
    if not head or any(path.startswith(TAKES_BOTH) for path in changed):
        return TURNS
    return (TURNS[int(head[-1], 16) % 2],)


def turn_of_this_change() -> tuple[str, ...]:
    head = git("rev-parse", "HEAD")
    changed = git("diff", "--name-only", base()).splitlines() if head else ()
    return turn(head, changed, os.environ.get("ALLOCATOR_TEST_TURN", ""))


def base() -> str:
    """The commit that this change begins after: HEAD itself where all is older, or in a clone of one commit."""
    given = git("rev-parse", "--verify", "--quiet", os.environ.get("ALLOCATOR_TEST_BASE", "") + "^{commit}")
    before = int(git("show", "--no-patch", "--format=%ct", "HEAD")) - HOURS * 3600
    return given or git("rev-list", "--first-parent", "--max-count=1", f"--before={before}", "HEAD") or "HEAD"


def git(*words: str) -> str:
    """What git says, or nothing, as where the tests are not in a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
