"""Startup cost: the import, the memory of idle tags, and the first id of a process.

A process is measured by its CPU, which other load on the machine changes least.
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
from .rounds import Figure, Measure, Race

IMPORT = "import time; began = time.perf_counter(); {0}; print(time.perf_counter() - began)"
MEMORY = """
import gc, os, sys
from allocator import Allocator

def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

names = [f"tag{number}" for number in range(int(sys.argv[1]))]
with Allocator(sys.argv[2], timeout=60) as ids:
    ids.next_id("warm")
    gc.collect()
    before = resident()
    for name in names:
        ids.next_id(name)
    gc.collect()
    print((resident() - before) / len(names) / 1024)
"""
TAGS = 5000

FIRST_ID = "import sqlalchemy, sys; from allocator import Allocator; Allocator(sys.argv[1]).next_id(sys.argv[2])"
SELECT = (
    "import sqlalchemy, sys; connection = sqlalchemy.create_engine(sys.argv[1]).connect(); "
    "connection.execute(sqlalchemy.text('SELECT 1')).scalar_one()"
)
OURS, THEIRS = "import allocator … first id", "import sqlalchemy … SELECT 1"

IMPORTS = (Figure("import allocator to import sqlalchemy", "import allocator", "import sqlalchemy", "≤ 0.25"),)
IDLE = (Figure("memory of an idle tag, in KiB", "an idle tag", "1 KiB", "≤ 2"),)
STARTED = (Figure("a process with its first id, to one with SQLAlchemy's SELECT 1, CPU", OURS, THEIRS, "≤ 1.25"),)


def said(*words: str) -> float:
    """The number that a Python program prints."""
    return float(subprocess.run([sys.executable, "-c", *words], capture_output=True, text=True, check=True).stdout)


@contextmanager
def races(_: Place) -> Iterator[list[Race]]:
    imports: dict[str, Measure] = {
        "import sqlalchemy": lambda: 1000 * said(IMPORT.format("import sqlalchemy")),
        "import allocator": lambda: 1000 * said(IMPORT.format("import allocator")),
    }
    found = [Race("start", "ms", imports, IMPORTS)]
    if sys.platform == "linux":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/ids.db"
            said(MEMORY, str(TAGS), url)  # creates the tags
            kib = said(MEMORY, str(TAGS), url)
        found.append(Race("start, memory", "KiB a tag", {"1 KiB": lambda: 1.0, "an idle tag": lambda: kib}, IDLE))
    yield found


def started(environment: dict[str, str], *words: str) -> Measure:
    """Milliseconds of CPU of a new process."""

    def used() -> float:
        told = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (told.ru_utime + told.ru_stime) * 1000

    def measure() -> float:
        before = used()
        subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=True)
        return used() - before

    measure()  # writes the bytecode
    return measure


@contextmanager
def first_id(place: Place) -> Iterator[list[Race]]:
    tag = place.tag("first")
    with Allocator(place.url, timeout=60) as ids:
        ids.next_id(tag)
    with tempfile.TemporaryDirectory() as folder:
        # Without kept bytecode, every process would compile the sources.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        kept["PYTHONPYCACHEPREFIX"] = folder
        ways = {
            THEIRS: started(kept, "-c", SELECT, place.url),
            OURS: started(kept, "-c", FIRST_ID, place.url, tag),
        }
        yield [Race("first id", "ms of CPU of a process", ways, STARTED, place.name)]
