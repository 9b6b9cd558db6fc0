"""A file of SQLite that is replaced by an older copy of itself, in the ways that people have."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.faults.forgetting import Forgetful
from support.servers.databases import with_schema
from support.servers.machines import until

QUIET = 0.3
"""Seconds without a write."""

Way = Callable[[Path, Path], None]


def overwritten(copy: Path, file: Path) -> None:
    """`cp`: the same inode."""
    subprocess.run(["cp", str(copy), str(file)], check=True)


def renamed(copy: Path, file: Path) -> None:
    """`mv`: another inode."""
    copy.rename(file)


def removed(copy: Path, file: Path) -> None:
    """`rm`, then `cp`: another inode, or the same number again."""
    file.unlink()
    shutil.copyfile(copy, file)


def loaded(copy: Path, file: Path) -> None:
    """`.restore` of SQLite's shell: page by page, as a transaction on the file itself."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(file)) as target:
        source.backup(target)


def dumped(copy: Path, file: Path) -> None:
    """`.dump` of the copy, read into a new file in its place."""
    with closing(sqlite3.connect(copy)) as source:
        script = "\n".join(source.iterdump())
    file.unlink()
    with closing(sqlite3.connect(file)) as target:
        target.executescript(script)


RENAMED: tuple[Way, ...] = (renamed,)
SAME_FILE: tuple[Way, ...] = (overwritten, loaded)
BY_LUCK: tuple[Way, ...] = (removed, dumped)
"""Some file systems give the number of a file that was removed to the next one."""


class Replaced(Forgetful):
    fragile = True  # SQLite would write its pages into the copy, or take the journal of one file for the other's

    def __init__(self, folder: Path, way: Way) -> None:
        self.file, self.copy, self.way = folder / "ids.db", folder / "copy.db", way
        self.url = f"sqlite:///{self.file}"
        with_schema(self.url)

    def part(self) -> None:
        self.wait_until_quiet()
        subprocess.run(["cp", str(self.file), str(self.copy)], check=True)

    def strike(self) -> None:
        self.wait_until_quiet()
        self.way(self.copy, self.file)

    def wait_until_quiet(self) -> None:
        """The last claims in advance are under way when all that was wanted has been drawn."""
        until(lambda: time.time() - self.file.stat().st_mtime > QUIET, "nobody writes")

    def close(self) -> None:
        pass
