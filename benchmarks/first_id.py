"""From the start of a process to the first id of a tag that is there, beside SQLAlchemy's way to `SELECT 1`.

Milliseconds in new interpreters. The parts of each way are noted too. The command is timed as a whole process, as is
the program beside it. CPU is that of whole processes, which other load on the machine changes least.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
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

    def __init__(self, environment: dict[str, str], program: str, *arguments: str) -> None:
        self.environment = environment
        self.command = [sys.executable, "-c", program, *arguments]
        self.parts: list[list[float]] = []

    def __call__(self) -> float:
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, check=True)
        self.parts.append([float(word) for word in done.stdout.split()])
        return sum(self.parts[-1])


def process(environment: dict[str, str], *command: str, cpu: bool = False) -> Measure:
    """Milliseconds of a whole process, or those of CPU."""

    def now() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if cpu else time.perf_counter()

    def measure() -> float:
        began = now()
        subprocess.run(command, env=environment, capture_output=True, check=True)
        return (now() - began) * 1000

    return measure


@contextmanager
def compiled() -> Iterator[dict[str, str]]:
    """An environment in which Python keeps bytecode: else the sources would be compiled in every process."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        yield kept | {"PYTHONPYCACHEPREFIX": folder}


@contextmanager
def races(place: Place) -> Iterator[tuple[list[Race], dict[str, Started]]]:
    tag = place.tag("first")
    with Allocator(place.url, timeout=60) as ids:
        ids.next_id(tag)
    ours, theirs = PARTS
    with compiled() as environment:
        ways = {
            theirs: Started(environment, SELECT, place.url, tag),
            ours: Started(environment, FIRST_ID, place.url, tag),
        }
        command = [sys.executable, "-m", "allocator", "next", tag, "--url", place.url]
        words = {theirs: ways[theirs].command, ours: ways[ours].command, "allocator next": command}
        timed = {name: process(environment, *one) for name, one in words.items() if name != ours}
        used = {name: process(environment, *one, cpu=True) for name, one in words.items()}
        for measure in used.values():
            measure()  # writes the bytecode
        candidates: dict[str, Measure] = dict(ways)
        yield (
            [
                Race(f"first id, {place.name}", "ms", candidates),
                Race(f"first id, {place.name}, command", "ms of a process", timed, judged=False),
                Race(f"first id, {place.name}, CPU", "ms of CPU of a process", used, judged=False),
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
