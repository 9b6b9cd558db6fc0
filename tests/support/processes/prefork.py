"""Programs that load an application and fork their workers then: servers, Celery workers, their answers."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import urllib3

from support.processes import patience

START_SECONDS = 120.0
ROUNDS = 20


def gunicorn(application: str, port: int, workers: int = 2) -> list[str]:
    """The command: the application is loaded once, before the workers are forked."""
    words = ["--preload", "--workers", str(workers), "--bind", f"127.0.0.1:{port}"]
    return [sys.executable, "-m", "gunicorn", *words, application]


def celery(application: str, processes: int = 2) -> list[str]:
    """The command of a worker with the prefork pool, whose processes get a task each at a time."""
    words = ["--pool", "prefork", "--concurrency", str(processes), "--prefetch-multiplier", "1"]
    return [sys.executable, "-m", "celery", "-A", application, "worker", *words, "--without-gossip", "--without-mingle"]


@contextmanager
def running(command: list[str], folder: Path, is_done: Callable[[], object], **settings: str) -> Iterator[None]:
    """A program and whatever it forks, until it has done so much or has ended, killed together at the end.

    Its words are in `folder/log`. Whoever looks next says what is missing.
    """
    with (folder / "log").open("a") as log:
        program = subprocess.Popen(
            command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
        )
    try:
        patience.until(is_done, START_SECONDS, every=0.1, hopeless=lambda: program.poll() is not None)
        yield
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(10)


@contextmanager
def serving(command: list[str], folder: Path, port: int, **settings: str) -> Iterator[None]:
    """A server that listens at `port`."""
    with running(command, folder, lambda: listens(port), **settings):
        yield


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Asked:
    """What is asked of a server at a port of this machine."""

    port: int
    path: str = "/"
    method: str = "GET"
    body: str | None = None

    def answer(self) -> dict:
        """Asked again until there is one."""
        address = f"http://127.0.0.1:{self.port}{self.path}"
        again = urllib3.Retry(100, allowed_methods=None, backoff_factor=0.1, backoff_max=0.1)
        return urllib3.request(self.method, address, body=self.body, timeout=30, retries=again).json()

    def answers(self, times: int) -> Iterator[dict]:
        """From several clients at once."""
        with ThreadPoolExecutor(6) as clients:
            yield from clients.map(lambda _: self.answer(), range(times))

    def answers_of_several(self, times: int) -> list[dict]:
        """The same, and again until more than one process has answered."""
        found: list[dict] = []
        for _ in range(ROUNDS):
            found += self.answers(times)
            if len({answer["process"] for answer in found}) > 1:
                break
        return found


def results(command: list[str], folder: Path, kept: Path, count: int, **settings: str) -> list:
    """What `count` tasks that are waiting returned to a Celery worker, which keeps results as files in `kept`."""
    done: list = []

    def all_done() -> bool:
        done[:] = [found for path in kept.glob("celery-task-meta-*") if (found := written(path)) is not None]
        return len(done) >= count

    with running(command, folder, all_done, **settings):
        return done


def written(path: Path) -> object:
    """The result in a file, None while it is being written."""
    try:
        return json.loads(path.read_text())["result"]
    except ValueError:
        return None
