"""Startup cost: the import compared with that of SQLAlchemy, and the memory of idle tags."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .rounds import Measure, Race

IMPORT = "import time; began = time.perf_counter(); {0}; print(time.perf_counter() - began)"
MEMORY = """
import asyncio, gc, os, threading, tracemalloc
from allocator import AsyncAllocator
from sqlalchemy import insert
from allocator.database.schema.tables import segment

def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main(count):
    # Many tags are looked at from outside: to follow every object takes minutes.
    outside = count > 10000 and os.path.exists("/proc/self/statm")
    names = [f"tag{number}" for number in range(count)]
    async with AsyncAllocator("sqlite://", timeout=60) as ids:
        await ids.next_id("warm")
        with ids._allocator._backend.databases()[0].engine.connect() as connection:
            rows = [{"tag": name, "max_value": 0, "step": 1000, "max_step": 1000000, "id_limit": 2**63 - 1,
                     "shard_offset": 1, "shard_step": 1} for name in names]
            for at in range(0, count, 10000):
                connection.execute(insert(segment), rows[at : at + 10000])
        del rows
        gc.collect()
        before = resident() if outside else tracemalloc.start() or 0
        for at in range(0, count, 500):
            await asyncio.gather(*(ids.next_id(name) for name in names[at : at + 500]))
        gc.collect()
        after = resident() if outside else tracemalloc.get_traced_memory()[0]
        print((after - before) / count / 1024, threading.active_count())

asyncio.run(main(COUNT))
"""
COUNTS = (10, 1000, 20_000)


def importing(words: str) -> Measure:
    """Milliseconds of an import, in a new process."""
    return lambda: 1000 * float(said(IMPORT.format(words)).split()[0])


def memory(count: int) -> tuple[float, int]:
    """KiB of Python's memory per idle tag that was used once, and the number of threads."""
    kib, threads = said(MEMORY.replace("COUNT", str(count))).split()
    return float(kib), int(threads)


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


@contextmanager
def races(quick: bool) -> Iterator[list[Race]]:
    imports = {"import sqlalchemy": importing("import sqlalchemy"), "import allocator": importing("import allocator")}
    imports["from allocator import Allocator"] = importing("from allocator import Allocator")
    sizes = {count: memory(count) for count in (COUNTS[:2] if quick else COUNTS)}
    kib: dict[str, Measure] = {"1 KiB": lambda: 1.0}
    for count, (size, threads) in sizes.items():
        kib[f"a tag of {count:,}, with {threads} threads"] = lambda size=size: size  # type: ignore[misc]
    largest = sizes[max(sizes)][0]
    kib["an idle tag"] = lambda: largest
    yield [Race("start", "ms", imports), Race("start, memory", "KiB a tag", kib)]
