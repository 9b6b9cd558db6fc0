"""How large the house is: numbers that may only fall, in `.ci/ratchets.toml`; `make ratchets` holds them.

    python -m tools.ratchets           each number is at most what the file says, and the file at most 1 % above it
    python -m tools.ratchets --write   write what was measured

seconds.ci is what `.ci/run` takes, which compares it: above twice the number is an error, since half of that may be a
slow machine.

A change that raises a number says why in the message of a commit, on a line such as "Raises lines.tests: …".
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from inspect import get_annotations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.servers.available import own

from allocator.database.dialect import Dialect
from allocator.database.mysql import MySQL
from allocator.database.postgresql import PostgreSQL
from allocator.database.sqlite import SQLite
from tools import walks

ROOT = Path(__file__).parents[2]
FILE = ".ci/ratchets.toml"
FOLDERS = ("allocator", "migrations", "tests", "benchmarks", "examples")
COUNTED = (".py", ".toml", ".yaml", ".yml", ".sql", ".html", ".js", ".css")
SLACK = 0.01
HOURS = 12
ELSEWHERE = ("seconds.", "postgresql.")
"""What is not measured here, or not everywhere."""
HEADER = """\
# May only fall: see tests/tools/ratchets.py. Lines are not blank. names: of Dialect and of those who inherit from it.
# postgresql, sqlite: see tests/tools/walks.py. sizes: lines of functions and modules in allocator.

"""

Numbers = dict[str, int]  # by names such as `lines.tests`


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def sizes(modules: Collection[str]) -> Numbers:
    """The median of the lines, and what a tenth exceeds: a walk that is shorter by longer functions is no gain."""
    functions = [
        ast.get_source_segment(text, node) or ""
        for text in modules
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = {}
    for name, texts in ("function", functions), ("module", modules):
        in_order = sorted(filter(None, map(lines, texts)))
        found[f"sizes.{name}-median"] = in_order[len(in_order) // 2]
        found[f"sizes.{name}-p90"] = in_order[len(in_order) * 9 // 10]
    return found


def words(site: str) -> int:
    """Of the built site, as its search has them."""
    return sum(len(re.sub(r"<[^>]+>", " ", page["text"]).split()) for page in json.loads(site)["docs"])


def items() -> int:
    """Of all tests but the long runs, on every database and with both faces."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return int(re.findall(r"^(\d+)(?:/\d+)? tests collected", said, re.MULTILINE)[-1])


def walked() -> Iterator[tuple[str, int]]:
    """Of each database that is here."""
    with TemporaryDirectory() as folder:
        yield from walks.numbers("sqlite", f"sqlite:///{folder}/ids.db")
    try:
        with own("postgres") as url:
            yield from walks.numbers("postgresql", url)
    except pytest.skip.Exception as why:
        print(f"the walks on PostgreSQL are not judged: {why}")


def measured() -> Numbers:
    found: Counter[str] = Counter()
    for name in git("ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS).splitlines():
        if name.endswith(COUNTED) and (ROOT / name).is_file():
            found[f"lines.{name.partition('/')[0]}"] += lines((ROOT / name).read_text())
    found["tests.items"] = items()
    found["words.site"] = words((ROOT / "site" / "search" / "search_index.json").read_text())
    bodies = [{*vars(each), *get_annotations(each)} for each in (Dialect, MySQL, PostgreSQL, SQLite)]
    found["names.dialect"] = sum(not name.startswith("_") for name in set().union(*bodies))
    return {**found, **sizes([path.read_text() for path in (ROOT / "allocator").rglob("*.py")]), **dict(walked())}


def parsed(text: str) -> Numbers:
    return {f"{group}.{name}": number for group, each in tomllib.loads(text).items() for name, number in each.items()}


def formatted(numbers: Numbers) -> str:
    return HEADER + "".join(f"{name} = {number}\n" for name, number in sorted(numbers.items()))


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def base() -> str:
    """The commit that this change begins after: ALLOCATOR_TEST_BASE, else the newest that is twelve hours older; HEAD
    itself where all is younger, as in a clone of one commit."""
    given = git("rev-parse", "--verify", "--quiet", os.environ.get("ALLOCATOR_TEST_BASE", "") + "^{commit}")
    before = int(git("show", "--no-patch", "--format=%ct", "HEAD")) - HOURS * 3600
    return given or git("rev-list", "--first-parent", "--max-count=1", f"--before={before}", "HEAD") or "HEAD"


def wrong(allowed: Numbers, found: Numbers) -> Iterator[str]:
    """What to say of the numbers that were measured."""
    for name in sorted({*allowed, *found}):
        may, number = allowed.get(name, 0), found.get(name, 0)
        if number > may:
            yield f"{name}: {number}, and may be {may}"
        elif number < may * (1 - SLACK):
            yield f"{name} fell from {may} to {number}: make ratchets RATCHETS=--write"


def raised(before: Numbers, after: Numbers, messages: str) -> Iterator[str]:
    """What to say of the numbers that a change raises, and whose reason is in none of its commits."""
    for name, number in after.items():
        if number > before.get(name, number) and not re.search(rf"(?m)^Raises {re.escape(name)}: \S", messages):
            yield f"{name} rises from {before[name]} to {number}, and no commit says 'Raises {name}: why'"


def main(option: str = "") -> int:
    allowed = parsed((ROOT / FILE).read_text())
    found = {name: number for name, number in allowed.items() if name.startswith(ELSEWHERE)} | measured()
    if option == "--write":
        (ROOT / FILE).write_text(formatted(found))
        return 0
    before, after = (parsed(git("show", f"{commit}:{FILE}")) for commit in (base(), "HEAD"))
    problems = [*wrong(allowed, found), *raised(before, after, git("log", "--format=%B", f"{base()}..HEAD"))]
    print(*(f"{name}: {number}" for name, number in found.items()), *problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
