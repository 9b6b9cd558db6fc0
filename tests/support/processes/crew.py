"""Processes that do one work until they are killed; one that has ended is followed by another."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from support.closing import Closing
from support.processes.patience import until

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["allocator.aio", "allocator.cli", "allocator.database.store", "psycopg", "pymysql"])
"""On a busy machine the imports take a worker longer than it may live; those of the test support itself are quick."""

START_SECONDS = 60

Work = Callable[..., object]
"""Called with the file of its notes, the number of the worker, and the words of its crew."""


class Worker(NamedTuple):
    process: BaseProcess
    notes: Path
    words: tuple[Any, ...]

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Crew(Closing):
    """begun: bytes of notes after which a worker has begun; 0 where it makes none.

    ever: all that were started. killed: how many were. ended: how many ended by themselves, as where a tag went back.
    """

    def __init__(self, work: Work, folder: Path, *words: Any, count: int = 0, begun: int = 0, seed: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.work, self.folder, self.begun = work, folder, begun
        self.rnd = random.Random(seed)
        self.killed = self.ended = 0
        self.ever: list[Worker] = []
        self.running = [self.start(*words) for _ in range(count)]

    def start(self, *words: Any) -> Worker:
        """One more, with these words behind its notes and its number."""
        number = len(self.ever)
        notes, errors = (self.folder / f"{kind}-{number}" for kind in ("notes", "errors"))
        process = PROCESSES.Process(target=run, args=(self.work, errors, notes, number, *words), daemon=True)
        self.ever.append(Worker(process, notes, words))
        process.start()
        return self.ever[-1]

    def has_begun(self, worker: Worker) -> bool:
        return not self.begun or (worker.notes.exists() and worker.notes.stat().st_size > self.begun)

    def kill_one(self, *, begun: bool = True) -> None:
        """One that has begun, if there is any: on a busy machine the next kill would else find it starting."""
        if found := [at for at, worker in enumerate(self.running) if not begun or self.has_begun(worker)]:
            at = self.rnd.choice(found)
            self.running[at].kill()
            self.replace(at)

    def kill_for(self, seconds: float, pause: float, trouble: Future[None]) -> None:
        """Kill one every `pause` seconds, until the time is over or the trouble beside it has failed."""
        end = time.monotonic() + seconds
        with tqdm(total=round(seconds), desc=self.folder.name, unit="s") as bar:
            while (left := end - time.monotonic()) > 0 and not (trouble.done() and trouble.exception()):
                time.sleep(min(left, pause * self.rnd.uniform(0.5, 1.5)))
                self.replace_the_ended()
                self.kill_one(begun=self.rnd.random() < 0.8)  # some die as they start
                bar.update(min(bar.total, round(seconds - max(0.0, end - time.monotonic()))) - bar.n)

    def replace(self, at: int) -> None:
        """One that has ended."""
        code = self.running[at].process.exitcode
        assert code in (0, -signal.SIGKILL), self.errors()
        self.killed += code != 0
        self.ended += code == 0
        self.running[at] = self.start(*self.running[at].words)

    def replace_the_ended(self) -> None:
        for at, worker in enumerate(self.running):
            if not worker.process.is_alive():
                self.replace(at)

    def wait_until_all_have_begun(self) -> None:
        """Where one does not, it may have ended, and is replaced."""

        def all_have() -> bool:
            if all(map(self.has_begun, self.running)):
                return True
            self.replace_the_ended()
            return False

        assert until(all_have, START_SECONDS), f"a worker noted nothing within {START_SECONDS} s: {self.errors()}"

    def errors(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("errors-*"))

    def close(self) -> None:
        for worker in self.running:
            worker.kill()
        self.running.clear()


def run(work: Work, errors: Path, *words: Any) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    work(*words)
