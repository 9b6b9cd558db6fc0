"""Troubles of a database, on a plan: it is killed or stopped and started again, frozen and thawed."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import make_url

from support.servers.databases import with_schema
from support.servers.machine_images import killable
from support.servers.machines import Machine

FIRST, EVERY = 10.0, 10.0
"""Seconds: a kill, a freeze or a restart in turn, so that each comes every 30."""


HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE allocator_segment SET max_value = min(max_value + 1000000, id_limit)")
print(flush=True)
time.sleep(3600)
"""


class FilePlace:
    """A file of SQLite, which has no server: a process that holds its lock, with changes that never come.

    It is killed in the middle of its transaction, or stopped there and killed later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holder: subprocess.Popen[bytes] | None = None

    def freeze(self) -> None:
        self.holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(self.path)], stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        self.holder.stdout.readline()

    def thaw(self) -> None:
        assert self.holder is not None
        self.holder.kill()
        self.holder.communicate()

    kill, stop, start = freeze, freeze, thaw


Place = Machine | FilePlace
"""A database that can be in trouble."""


@contextmanager
def place_of(kind: str, new_database: Callable[[str], str]) -> Iterator[tuple[str, Place]]:
    """The URL of a database with the schema, and what may be killed: a server of its own, or the file."""
    if kind == "sqlite":
        url = with_schema(new_database(kind))
        yield url, FilePlace(Path(str(make_url(url).database)))
        return
    with killable(kind) as server:
        yield with_schema(server.url), server


class Blow(NamedTuple):
    at: float
    """Seconds after the beginning."""
    what: str
    lasts: float


def planned(seed: int, seconds: float) -> list[Blow]:
    """In turn, the last one in time for what follows it."""
    rnd = random.Random(seed)
    found, at, kinds = [], FIRST, ("kill", "freeze", "restart")
    while at < seconds - EVERY / 2:
        what = kinds[len(found) % 3]
        found.append(Blow(at, what, rnd.uniform(0.2, 8.0) if what == "freeze" else rnd.uniform(0.1, 2.0)))
        at += EVERY
    return found


def strike(place: Place, blow: Blow) -> None:
    begin = {"kill": place.kill, "freeze": place.freeze, "restart": place.stop}[blow.what]
    end = place.thaw if blow.what == "freeze" else place.start
    begin()
    try:
        time.sleep(blow.lasts)
    finally:
        end()


@contextmanager
def troubled(place: Place | None, plan: list[Blow]) -> Iterator[tuple[Counter[str], Future[None]]]:
    """While the plan is followed: what has been done of it, and the future of its end."""
    over, done = threading.Event(), Counter[str]()

    def follow(began: float) -> None:
        for blow in plan:
            if place is None or over.wait(max(0.0, began + blow.at - time.monotonic())):
                return
            strike(place, blow)
            done[blow.what] += 1

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, time.monotonic())
        try:
            yield done, following
        finally:
            over.set()
    following.result()
