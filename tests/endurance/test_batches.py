"""Processes that draw from many tags, so that they claim together, killed at random: never an id twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter

from support.distinct import none_twice
from tqdm import tqdm

WORKER = """
import asyncio, sys
from allocator import AsyncAllocator
url, tag, path, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
async def main():
    async with AsyncAllocator(url, step=3, max_step=30, timeout=60) as ids:
        tags = [f"{tag}.{number}" for number in range(150)]
        with open(path, "a", buffering=1) as out:
            for _ in range(rounds):
                found = await asyncio.gather(*(ids.next_ids(name, 4) for name in tags))
                out.write("".join(f"{at} {one}\\n" for at, several in enumerate(found) for one in several))
asyncio.run(main())
"""
PROCESSES, ROUNDS, KILLS = 4, 60, 25


def test_killed_processes_that_claim_many_tags_together(url, kind, tag, tmp_path, report):
    rnd, running, killed = random.Random(20261121), [], 0

    def start() -> None:
        path = tmp_path / f"ids-{len(list(tmp_path.iterdir()))}-{rnd.random()}"
        path.touch()
        words = [url, tag, str(path), str(ROUNDS)]
        running.append(subprocess.Popen([sys.executable, "-c", WORKER, *words]))

    for _ in range(PROCESSES):
        start()
    try:
        for _ in tqdm(range(KILLS), desc=kind):
            time.sleep(rnd.uniform(0.2, 1.0))
            victim = running.pop(rnd.randrange(len(running)))
            killed += victim.poll() is None
            victim.kill()
            victim.wait()
            start()
        for process in running:
            assert process.wait(600) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    # The last line of one that was killed may be half a line.
    drawn = Counter(line for path in tmp_path.iterdir() for line in path.read_text().split("\n")[:-1])
    twice = [line for line, count in drawn.items() if count > 1]
    report(f"{kind}: {len(drawn):,} ids of 150 tags, {killed} processes killed, {len(twice)} duplicates")

    none_twice(twice)
    assert len(drawn) >= PROCESSES * ROUNDS * 150 * 4
