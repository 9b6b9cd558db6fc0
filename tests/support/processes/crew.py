"""Worker processes that draw from the same tags; one that was killed is followed by another."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from support.processes.drawing import FACES, Told, run
from support.processes.patience import until

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["allocator.aio", "allocator.database.store", "psycopg", "pymysql"])
"""On a busy machine the imports take a worker longer than it may live; those of the test support itself are quick."""

START_SECONDS = 60
SOME_IDS = 4096
"""Bytes of an account; calls that failed are 24 each."""
TAGS = tuple(f"tag-{number}" for number in range(24))
"""Many, so that claims come together."""


class Worker(NamedTuple):
    process: BaseProcess
    account: Path

    def has_drawn(self) -> bool:
        return self.account.exists() and self.account.stat().st_size > SOME_IDS

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Crew:
    """rate: ids a second of all of them together. settings: of their allocators.

    killed: how many were. ended: how many ended by themselves, as they do where a tag went back.
    """

    def __init__(
        self, url: str, folder: Path, *, seed: int, rate: float, settings: Mapping[str, Any], count: int = 6
    ) -> None:
        self.url, self.folder, self.settings, self.each = url, folder, settings, rate / count
        self.rnd = random.Random(seed)
        self.started = self.killed = self.ended = 0
        self.running = [self.start() for _ in range(count)]

    def start(self) -> Worker:
        account = self.folder / f"account-{self.started}"
        told = Told(
            url=self.url,
            path=str(account),
            errors=str(self.folder / f"errors-{self.started}"),
            tags=TAGS,
            settings=dict(self.settings),
            rate=self.each,
            seed=self.rnd.getrandbits(32),
            face=FACES[self.started % len(FACES)],
        )
        self.started += 1
        worker = Worker(PROCESSES.Process(target=run, args=(told,), daemon=True), account)
        worker.process.start()
        return worker

    def kill_one(self) -> None:
        """One that has begun to draw, if there is any: on a busy machine the next kill would else find it starting."""
        drawing_now = [at for at, worker in enumerate(self.running) if worker.has_drawn()]
        if not drawing_now:
            return
        at = self.rnd.choice(drawing_now)
        self.running[at].kill()
        self.killed += 1
        self.running[at] = self.start()

    def wait_until_all_draw(self) -> None:
        assert until(self.all_draw, START_SECONDS), f"a worker drew nothing within {START_SECONDS} s"

    def all_draw(self) -> bool:
        """Where one does not, it may have ended, and is replaced."""
        if all(worker.has_drawn() for worker in self.running):
            return True
        self.replace_the_ended()
        return False

    def replace_the_ended(self) -> None:
        for at, worker in enumerate(self.running):
            if not worker.process.is_alive():
                assert worker.process.exitcode == 0, self.errors()
                self.ended += 1
                self.running[at] = self.start()

    def errors(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("errors-*"))

    def end(self) -> None:
        for worker in self.running:
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
