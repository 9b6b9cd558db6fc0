"""From the start of a process to the first id of a tag that is there, beside SQLAlchemy's way to `SELECT 1`.

Milliseconds in new interpreters. The parts of each way are noted too. The command is timed as a whole process, as is
the program beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from allocator import Allocator

from .places import Place
from .rounds import Measure, Race

HEAD = """
import sys, time
noted, url, tag = [time.perf_counter()], *sys.argv[1:]
def note(): noted.append(time.perf_counter())
import sqlalchemy
note()
"""
TAIL = """
print(*(1000 * (after - before) for before, after in zip(noted, noted[1:])))
"""
FIRST_ID = f"""{HEAD}
from allocator import Allocator
note()
ids = Allocator(url)
note()
ids.next_id(tag)
note()
{TAIL}"""
SELECT = f"""{HEAD}
engine = sqlalchemy.create_engine(url)
note()
connection = engine.connect()
note()
connection.execute(sqlalchemy.text("SELECT 1")).scalar_one()
note()
{TAIL}"""
PARTS = {
    "import allocator … first id": ("import sqlalchemy", "import allocator", "Allocator(url)", "connect, first id"),
    "import sqlalchemy … SELECT 1": ("import sqlalchemy", "create_engine(url)", "connect", "SELECT 1"),
}


class Started:
    """Runs a program in a new interpreter, and notes how long its parts took."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.command = [sys.executable, "-c", program, *arguments]
        self.parts: list[list[float]] = []

    def __call__(self) -> float:
        done = subprocess.run(self.command, capture_output=True, text=True, check=True)
        self.parts.append([float(word) for word in done.stdout.split()])
        return sum(self.parts[-1])


def process(*command: str) -> Measure:
    """Milliseconds of a whole process."""

    def measure() -> float:
        began = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        return (time.perf_counter() - began) * 1000

    return measure


@contextmanager
def races(place: Place) -> Iterator[tuple[list[Race], dict[str, Started]]]:
    tag = place.tag("first")
    with Allocator(place.url, timeout=60) as ids:
        ids.next_id(tag)
    ours, theirs = PARTS
    ways = {theirs: Started(SELECT, place.url, tag), ours: Started(FIRST_ID, place.url, tag)}
    command = (sys.executable, "-m", "allocator", "next", tag, "--url", place.url)
    commands = {theirs: process(*ways[theirs].command), "allocator next": process(*command)}
    candidates: dict[str, Measure] = dict(ways)
    yield (
        [
            Race(f"first id, {place.name}", "ms", candidates),
            Race(f"first id, {place.name}, command", "ms of a process", commands, judged=False),
        ],
        ways,
    )


def parts_of(place: Place, ways: dict[str, Started]) -> list[Race]:
    """What was noted, as a race for each way."""
    found = []
    for way, started in ways.items():
        noted = dict(zip(PARTS[way], map(list, zip(*started.parts, strict=True)), strict=True))
        nothing: dict[str, Measure] = dict.fromkeys(noted, lambda: 0.0)
        found.append(Race(f"first id, {place.name}, parts of {way}", "ms", nothing, judged=False, found=noted))
    return found
