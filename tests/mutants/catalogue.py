"""The mutants as data: `catalogue/*.toml`, one file for each part of the library.

[[mutant]]
name = "memory before commit"       what is wrong with it, in a few words
rule = "2: memory changes only after the commit"
file = "allocator/schemes/segment_refill.py"
old = "…"                           occurs exactly once in the file
new = "…"
tests = ["tests/unit/schemes/test_segment_refill.py"]
only = "sqlite"                     pytest's -k, where the tests are those of several databases
server = "postgres"                 the kind of server that shows it, where SQLite does not
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "catalogue"


class NoLongerApplies(Exception):
    """The library has changed: the mutant must be written anew. The message says which one."""


@dataclass(frozen=True)
class Mutant:
    """One change, and who should notice it. `only` and `server` are empty where there is no need."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = ""
    server: str = ""

    @property
    def selection(self) -> str:
        """For pytest's -k."""
        return self.only or self.server

    def source(self, root: Path = ROOT) -> str:
        """The changed file; a module compiles. Raises `NoLongerApplies`."""
        text = (root / self.file).read_text()
        if (found := text.count(self.old)) != 1:
            raise NoLongerApplies(f"{self.name}: the old text is {found} times in {self.file}, and must be once")
        changed = text.replace(self.old, self.new)
        if self.file.endswith(".py"):
            compile(changed, self.file, "exec")
        return changed


def catalogue() -> list[Mutant]:
    """All of them, in the order of the files."""
    return [
        Mutant(**{**entry, "tests": tuple(entry["tests"])})
        for path in sorted(FOLDER.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]
