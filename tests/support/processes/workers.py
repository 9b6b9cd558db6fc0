"""Processes that draw ids and write each to a file before they draw the next, so that a kill hides none."""

from __future__ import annotations

import array
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

WORKER = """
import sys
from allocator import Allocator
url, tag, path, step, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
with Allocator(url, step=step, max_step=100 * step, timeout=30) as ids, open(path, "ab", buffering=0) as out:
    sequence = ids.sequence(tag)
    for _ in range(count):
        out.write(sequence.next_id().to_bytes(8, "little"))
"""


@dataclass(frozen=True, slots=True)
class Report:
    ids: int
    duplicates: int
    killed: int


class Workers:
    """Several processes on one tag; one that was killed is followed by another until the ids are drawn."""

    def __init__(self, url: str, tag: str, folder: Path, *, step: int, ids_each: int, count: int = 4) -> None:
        self.command = [url, tag]
        self.folder, self.step, self.ids_each = folder, step, ids_each
        self.killed = self.started = 0
        self.running: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self.start()

    def start(self) -> None:
        self.started += 1
        path = self.folder / f"ids-{self.started}"
        words = [*self.command, str(path), str(self.step), str(self.ids_each)]
        self.running.append(subprocess.Popen([sys.executable, "-c", WORKER, *words]))

    def kill_one(self, which: int = 0) -> None:
        victim = self.running.pop(which)
        if victim.poll() is None:
            victim.kill()
            self.killed += 1
        victim.wait()
        self.start()

    def kill_at_random(self, kills: int, pause: float, seed: int) -> None:
        rnd = random.Random(seed)
        for _ in range(kills):
            time.sleep(pause * rnd.uniform(0.5, 1.5))
            self.kill_one(rnd.randrange(len(self.running)))

    def wait(self, seconds: float) -> None:
        """Wait for the end of those that run; one that failed by itself is an error."""
        for worker in self.running:
            code = worker.wait(seconds)
            assert code == 0, f"a worker ended with {code}"
        self.running.clear()

    def report(self) -> Report:
        ids = array.array("q")
        for path in self.folder.glob("ids-*"):
            data = path.read_bytes()
            ids.frombytes(data[: len(data) // 8 * 8])
        return Report(len(ids), len(ids) - len(set(ids)), self.killed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.running:
            worker.kill()
            worker.wait()
