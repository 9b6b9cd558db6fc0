"""Fleets under load: shards that are killed, and growth whose commands are killed."""

from __future__ import annotations

import array
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.distinct import distinct
from support.processes.patience import until
from support.servers.available import KINDS, SERVERS, Server
from support.servers.machine_images import killable
from tqdm import tqdm

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import AllocatorError

# -- one of three is killed every 10 s

SECONDS, EVERY, DOWN, THREADS, DEADLINE = 120, 10, 4, 8, 5.0


@pytest.fixture
def killable_servers() -> Iterator[list]:
    """Three servers in containers of their own, which keep port and data when they are killed and started again."""
    with ExitStack() as stack:
        yield [stack.enter_context(killable(kind)) for kind in KINDS]


class Load:
    """Threads that draw tickets, and what became of each call."""

    def __init__(self, ids: Allocator) -> None:
        self.ids = ids
        self.drawn: list[list[int]] = [[] for _ in range(THREADS)]
        self.failed: list[str] = []
        self.longest = 0.0
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.draw, args=(mine,)) for mine in self.drawn]
        for thread in self.threads:
            thread.start()

    def draw(self, mine: list[int]) -> None:
        while not self.stopped.is_set():
            began = time.monotonic()
            try:
                mine.append(self.ids.ticket("job"))
            except AllocatorError as error:
                self.failed.append(str(error))
            self.longest = max(self.longest, time.monotonic() - began)

    def end(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(30)


def test_one_of_three_is_killed_again_and_again(killable_servers, report):
    urls = [server.url for server in killable_servers]
    for url in urls:
        migrate(url)
    rnd = random.Random(20261121)
    with Allocator(shards=urls, timeout=DEADLINE) as ids:
        ids.ticket("job")
        load = Load(ids)
        try:
            for _ in tqdm(range(SECONDS // EVERY), desc="kills", unit="kill"):
                victim = rnd.choice(killable_servers)
                victim.kill()
                time.sleep(DOWN)
                victim.start()
                time.sleep(EVERY - DOWN)
            time.sleep(LONGEST_PAUSE)
        finally:
            load.end()
        last = {ids.ticket("job") % 3 for _ in range(6)}
    tickets = [ticket for mine in load.drawn for ticket in mine]
    calls = len(tickets) + len(load.failed)
    report(
        f"{calls} calls on {THREADS} threads, {SECONDS // EVERY} kills: {len(load.failed)} failed, "
        f"the longest took {load.longest:.2f} s of {DEADLINE:g}, {len(tickets) - len(set(tickets))} duplicates"
    )
    assert distinct(tickets)
    assert len(load.failed) <= calls / 10_000, load.failed[:3]
    assert load.longest <= DEADLINE + 0.5
    assert last == {0, 1, 2}, "a shard is not used again"


LONGEST_PAUSE = 12.0


def migrate(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        database = Database(url, timeout=20)
        try:
            database.upgrade_schema()
            return
        except AllocatorError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        finally:
            database.close()


# -- growth from 2 to 3 to 5, twenty times

ROUNDS, PROCESSES = 20, 4

DRAWING = """
import pathlib, sys
from allocator import Allocator
stop, out, *urls = sys.argv[1:]
with Allocator(shards=urls, step=20, max_step=200, timeout=20) as ids:
    with open(out + ".tickets", "ab", buffering=0) as tickets, open(out + ".ids", "ab", buffering=0) as numbers:
        while not pathlib.Path(stop).exists():
            for _ in range(20):
                tickets.write(ids.ticket("job").to_bytes(8, "little"))
                numbers.write(b"".join(ids.next_id("order").to_bytes(8, "little") for _ in range(20)))
"""


def test_growth_under_load_with_the_command_killed(new_database, tmp_path, report):
    SERVERS.start(set(KINDS))
    kinds = ["sqlite", *(kind for kind, server in SERVERS.found.items() if isinstance(server, Server))]
    rnd = random.Random(20261121)
    total = killed = 0
    for number in tqdm(range(ROUNDS), desc="growths", unit="fleet"):
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        tickets, ids, kills = one_growth(new_database, kinds[number % len(kinds)], folder, rnd)
        assert distinct(tickets)
        assert distinct(ids)
        total += len(tickets) + len(ids)
        killed += kills
    report(
        f"{ROUNDS} fleets of {', '.join(kinds)} grown from 2 to 3 to 5 under load of {PROCESSES} processes, "
        f"{killed} commands killed: {total} tickets and ids, no duplicate, no client restarted"
    )
    assert killed > ROUNDS


def one_growth(new_database, kind: str, folder: Path, rnd: random.Random) -> tuple[array.array, array.array, int]:
    urls = [new_database(kind) for _ in range(5)]
    for url in urls:
        migrate(url)
    stop = folder / "stop"
    running = [
        subprocess.Popen([sys.executable, "-c", DRAWING, str(stop), str(folder / f"client{n}"), *urls[:2]])
        for n in range(PROCESSES)
    ]
    kills = 0
    try:
        wait_for_tickets(folder)
        for new in ([urls[2]], urls[3:]):
            for url in new:
                kills += until_done(rnd, "add", url, "--url", urls[0])
            kills += until_done(rnd, "grow", "--headroom", "2000", "--url", urls[0])
            time.sleep(1)
    finally:
        stop.touch()
        codes = [process.wait(60) for process in running]
    assert codes == [0] * PROCESSES, "a client ended by itself"
    return read(folder, "tickets"), read(folder, "ids"), kills


def wait_for_tickets(folder: Path) -> None:
    def all_draw() -> bool:
        return len([file for file in folder.glob("*.ids") if file.stat().st_size]) >= PROCESSES

    assert until(all_draw, 30), "the clients do not start"


def until_done(rnd: random.Random, *words: str) -> int:
    """Run a command, kill it at a random moment, and again, until it was quick enough; how often it was not."""
    kills = 0
    while True:
        command = subprocess.Popen(
            [sys.executable, "-m", "allocator", "shards", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        patience = rnd.uniform(0.3, 1.2) if kills < 6 else 60.0
        try:
            said, errors = command.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            kills += 1
            continue
        assert command.returncode == 0 or "no growth is planned" in errors, errors + said
        return kills


def read(folder: Path, what: str) -> array.array:
    found: array.array = array.array("q")
    for path in folder.glob(f"*.{what}"):
        found.frombytes(path.read_bytes())
    return found
