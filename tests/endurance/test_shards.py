"""Fleets under load: databases that are killed, and commands that are killed while they make a fleet."""

from __future__ import annotations

import array
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.distinct import distinct
from support.processes.patience import until
from support.servers.available import KINDS, SERVERS, Server
from support.servers.fleets import made, named
from support.servers.machine_images import killable
from tqdm import tqdm

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import AllocatorError
from allocator.fleet import commands
from allocator.schemes.slots import Shard, Word

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
    plain = [server.url for server in killable_servers]
    for url in plain:
        migrate(url)
    urls = made(plain)
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
    assert last == {0, 1, 2}, "a database is not used again"


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


# -- a database becomes a fleet of three, twenty times

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


def test_a_fleet_is_made_under_load_with_the_command_killed(new_database, tmp_path, report):
    SERVERS.start(set(KINDS))
    kinds = ["sqlite", *(kind for kind, server in SERVERS.found.items() if isinstance(server, Server))]
    rnd = random.Random(20261121)
    total = killed = 0
    for number in tqdm(range(ROUNDS), desc="fleets", unit="fleet"):
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        tickets, ids, kills = one_fleet(new_database, kinds[number % len(kinds)], folder, rnd)
        assert distinct(tickets)
        assert distinct(ids)
        total += len(tickets) + len(ids)
        killed += kills
    report(
        f"{ROUNDS} databases of {', '.join(kinds)} became fleets of three under load of {PROCESSES} processes, "
        f"{killed} commands killed: {total} tickets and ids, no duplicate, no client restarted"
    )
    assert killed > ROUNDS


def one_fleet(new_database, kind: str, folder: Path, rnd: random.Random) -> tuple[array.array, array.array, int]:
    plain = [new_database(kind) for _ in range(3)]
    for url in plain:
        migrate(url)
    stop, clients = folder / "stop", itertools.count()
    running: list[subprocess.Popen[bytes]] = []

    def draw(*urls: str) -> None:
        command = [sys.executable, "-c", DRAWING, str(stop), str(folder / f"client{next(clients)}"), *urls]
        running.append(subprocess.Popen(command))

    kills = 0
    try:
        for _ in range(PROCESSES):
            draw(plain[0])
        wait_for_tickets(folder)
        killed = killed_once(rnd, "make", "--slots", "64", "--url", plain[0])
        urls, kills = [named(plain[0], word_of_row(plain[0]))], kills + killed
        slot = 1
        for new in plain[1:]:
            while True:  # what was killed has spent its slot
                slot += 1
                spent = [word for taken in taken_in(urls[0]) - slots_of(urls) for word in ("--without", str(taken))]
                members = [word for url in urls for word in ("--url", url)]
                killed = killed_once(rnd, "add", new, "--slot", str(slot), *spent, *members)
                kills += killed
                if row_of(new).fleet:
                    break
            urls.append(named(new, row_of(new).word))
            draw(*urls)
            time.sleep(1)
    finally:
        stop.touch()
        codes = [process.wait(60) for process in running]
    assert codes == [0] * len(running), "a client ended by itself"
    return read(folder, "tickets"), read(folder, "ids"), kills


def row_of(url: str) -> Shard:
    with closing(Database(url)) as database:
        return database.read_row()


def word_of_row(url: str) -> Word | None:
    """After `make`, which may have been killed before or after it was done."""
    if not row_of(url).fleet:
        with closing(Database(url)) as database:
            commands.make(database, 64)
    return row_of(url).word


def taken_in(url: str) -> set[int]:
    return {*row_of(url).taken}


def slots_of(urls: list[str]) -> set[int]:
    return {int(url.rpartition(".")[2]) for url in urls}


def wait_for_tickets(folder: Path) -> None:
    def all_draw() -> bool:
        return len([file for file in folder.glob("*.ids") if file.stat().st_size]) >= PROCESSES

    assert until(all_draw, 30), "the clients do not start"


def killed_once(rnd: random.Random, *words: str) -> int:
    """Run a command, and kill it at a random moment unless it was quicker; whether it was not."""
    command = subprocess.Popen(
        [sys.executable, "-m", "allocator", "shards", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said, errors = command.communicate(timeout=rnd.uniform(0.5, 1.5))
    except subprocess.TimeoutExpired:
        command.kill()
        command.communicate()
        return 1
    assert command.returncode == 0, errors + said
    return 0


def read(folder: Path, what: str) -> array.array:
    found: array.array = array.array("q")
    for path in folder.glob(f"*.{what}"):
        found.frombytes(path.read_bytes())
    return found
