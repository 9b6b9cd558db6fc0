"""How large the house is: numbers that may only fall, in `.ci/ratchets.toml`; `make ratchets` holds them.

    python -m tools.ratchets               each number is at most what the file says, and the file at most 1 % above it
    python -m tools.ratchets --write       write what was measured
    python -m tools.ratchets --seconds N   what `.ci/run` took; above twice the number of the file it is an error,
                                           since half of that may be a slow machine

A change that raises a number says why in the message of a commit, on a line such as "Raises lines.tests: …".
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import get_annotations
from tempfile import TemporaryDirectory

import pytest
from support.quick import ROOT, base, git
from support.servers.available import own

from allocator.database.dialect import Dialect
from allocator.database.mysql import MySQL
from allocator.database.postgresql import PostgreSQL
from allocator.database.sqlite import SQLite
from tools import walks

FILE = ".ci/ratchets.toml"
FOLDERS = ("allocator", "migrations", "tests", "benchmarks", "examples")
COUNTED = (".py", ".toml", ".yaml", ".yml", ".sql", ".html", ".js", ".css")
SLACK = 0.01
SECONDS, SLOW = "seconds.ci", 2
POSTGRES = "postgresql"
HEADER = """\
# May only fall: see tests/tools/ratchets.py. Lines are not blank. names: of Dialect and of those who inherit from it.
# postgresql, sqlite: see tests/tools/walks.py. sizes: lines of functions and modules in allocator.
"""

Numbers = dict[str, int]
"""By names such as `lines.tests`."""


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def sizes(texts: Iterable[str]) -> Numbers:
    """The median of the lines, and what a tenth exceeds: a walk that is shorter by longer functions is no gain."""
    modules = list(texts)
    functions = [
        lines("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]))
        for text in modules
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = {}
    for name, all_lines in ("function", functions), ("module", [lines(text) for text in modules]):
        in_order = sorted(filter(None, all_lines))
        found[f"sizes.{name}-median"] = in_order[len(in_order) // 2]
        found[f"sizes.{name}-p90"] = in_order[len(in_order) * 9 // 10]
    return found


def names(*classes: type) -> set[str]:
    """All public names in the bodies of these classes, whichever of them has one."""
    return {name for each in classes for name in {*vars(each), *get_annotations(each)} if not name.startswith("_")}


def words(index: Mapping[str, Sequence[Mapping[str, str]]]) -> int:
    """Of the built site, as its search has them."""
    return sum(len(re.sub(r"<[^>]+>", " ", page["text"]).split()) for page in index["docs"])


def raised(before: Mapping[str, int], after: Mapping[str, int], messages: str) -> list[str]:
    """What to say of the numbers that a change raises, and whose reason is in none of its commits."""
    return [
        f"{name} rises from {before[name]} to {number}, and no commit says 'Raises {name}: why'"
        for name, number in after.items()
        if number > before.get(name, number)
        and not re.search(rf"^Raises {re.escape(name)}: \S", messages, re.MULTILINE)
    ]


def wrong(allowed: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """What to say of the numbers that were measured."""
    said = []
    for name in sorted({*allowed, *found} - {SECONDS}):
        may, number = allowed.get(name, 0), found.get(name, 0)
        if number > may:
            said.append(f"{name}: {number}, and may be {may}")
        elif number < may * (1 - SLACK):
            said.append(f"{name} fell from {may} to {number}: make ratchets RATCHETS=--write")
    return said


def measured() -> Numbers:
    found: Counter[str] = Counter()
    for name in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        folder, path = name.partition("/")[0], ROOT / name
        if folder in FOLDERS and name.endswith(COUNTED) and path.is_file():
            found[f"lines.{folder}"] += lines(path.read_text())
    found["tests.items"] = items()
    found["words.site"] = words(json.loads((ROOT / "site" / "search" / "search_index.json").read_text()))
    found["names.dialect"] = len(names(Dialect, MySQL, PostgreSQL, SQLite))
    found |= sizes(path.read_text() for path in (ROOT / "allocator").rglob("*.py"))
    for group, numbers in walked():
        found |= {f"{group}.{name}": number for name, number in numbers.items()}
    return dict(sorted(found.items()))


def walked() -> Iterator[tuple[str, Numbers]]:
    """Of each database that is here."""
    with TemporaryDirectory() as folder:
        yield "sqlite", walks.numbers(f"sqlite:///{folder}/ids.db")
    try:
        with own("postgres") as url:
            yield POSTGRES, walks.numbers(url)
    except pytest.skip.Exception as why:
        print(f"the walks on PostgreSQL are not judged: {why}")


def items() -> int:
    """Of all tests but the long runs, on every database and with both faces."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return int(re.findall(r"^(\d+)(?:/\d+)? tests collected", said, re.MULTILINE)[-1])


def parsed(text: str) -> Numbers:
    return {f"{group}.{name}": number for group, each in tomllib.loads(text).items() for name, number in each.items()}


def formatted(numbers: Mapping[str, int]) -> str:
    text = HEADER
    for group in sorted({name.partition(".")[0] for name in numbers}):
        own = {name: number for name, number in sorted(numbers.items()) if name.startswith(f"{group}.")}
        rows = [f"{name.partition('.')[2]} = {number}\n" for name, number in own.items()]
        text += f"\n[{group}]\n{''.join(rows)}"
    return text


def unexplained() -> list[str]:
    """The numbers that this change raises without a reason."""
    begin = base()
    before, after = (parsed(git("show", f"{commit}:{FILE}")) for commit in (begin, "HEAD"))
    return raised(before, after, git("log", "--format=%B", f"{begin}..HEAD"))


def main(arguments: Sequence[str]) -> int:
    allowed = parsed((ROOT / FILE).read_text())
    if arguments[:1] == ["--seconds"]:
        seconds, may = int(arguments[1]), allowed[SECONDS]
        print(f"seconds.ci: {seconds}, goal {may}")
        return int(seconds > SLOW * may)
    found = measured()
    if not any(name.startswith(f"{POSTGRES}.") for name in found):
        found |= {name: number for name, number in allowed.items() if name.startswith(f"{POSTGRES}.")}
    if "--write" in arguments:
        (ROOT / FILE).write_text(formatted({**found, SECONDS: allowed[SECONDS]}))
        return 0
    print(*(f"{name}: {number}" for name, number in found.items()), sep="\n")
    problems = wrong(allowed, found) + unexplained()
    print(*problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
