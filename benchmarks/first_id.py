"""From the start of a process to the first id of a tag that is there, beside SQLAlchemy's way to `SELECT 1`.

Judged by the CPU of whole new processes, which other load on the machine changes least. The command is measured too.
The parts of each way are timed by the clock.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
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


def used() -> float:
    """Milliseconds of CPU of all child processes that have ended."""
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (told.ru_utime + told.ru_stime) * 1000


class Started:
    """Milliseconds of CPU of a new process. Notes the parts that its program tells."""

    def __init__(self, environment: dict[str, str], *command: str) -> None:
        self.environment = environment
        self.command = command
        self.parts: list[list[float]] = []

    def __call__(self) -> float:
        before = used()
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, check=True)
        self.parts.append([float(word) for word in done.stdout.split()])
        return used() - before


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
            theirs: Started(environment, sys.executable, "-c", SELECT, place.url, tag),
            ours: Started(environment, sys.executable, "-c", FIRST_ID, place.url, tag),
            "allocator next": Started(environment, sys.executable, "-m", "allocator", "next", tag, "--url", place.url),
        }
        for way in ways.values():
            way()  # writes the bytecode
            way.parts.clear()
        candidates: dict[str, Measure] = dict(ways)
        yield [Race(f"first id, {place.name}", "ms of CPU of a process", candidates)], ways


def parts_of(place: Place, ways: dict[str, Started]) -> list[Race]:
    """What was noted, as a race for each way."""
    found = []
    for way, names in PARTS.items():
        noted = dict(zip(names, map(list, zip(*ways[way].parts, strict=True)), strict=True))
        nothing: dict[str, Measure] = dict.fromkeys(noted, lambda: 0.0)
        found.append(Race(f"first id, {place.name}, parts of {way}", "ms", nothing, judged=False, found=noted))
    return found
