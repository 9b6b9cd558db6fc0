"""Fleets under load: databases that are killed, and commands that are killed while they make a fleet."""

from __future__ import annotations

import array
import asyncio
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from support.distinct import distinct
from support.processes.crew import Crew
from support.processes.patience import until
from support.servers.available import KINDS, SERVERS, Server
from support.servers.fleets import made, named
from support.servers.machine_images import killable
from tqdm import tqdm

from allocator import Allocator, AsyncAllocator
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


def killed_once(rnd: random.Random, *words: str, most: float = 1.5) -> int:
    """Run a command, and kill it at a random moment unless it was quicker; whether it was not."""
    command = subprocess.Popen(
        [sys.executable, "-m", "allocator", "shards", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said, errors = command.communicate(timeout=rnd.uniform(0.5, most))
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


# -- millions of ids while one database becomes three: clients, servers and commands are killed

CLIENTS, IDS_A_TICKET, PATIENCE = 8, 100, 20.0
KILL_CLIENT, KILL_SERVER, AWAY, LEAST = 4.0, 20.0, 3.0, 3
"""Seconds between two kills, how long a server is away, and how many are killed at least."""


class Notes:
    """What a client has drawn, written before the next call; its longest call, and those that failed."""

    def __init__(self, path: Path) -> None:
        self.path, self.longest = path, 0.0
        self.ids = path.open("ab", buffering=0)
        self.tickets, self.failed = (self.beside(what).open("ab", buffering=0) for what in ("tickets", "failed"))

    def beside(self, what: str) -> Path:
        return self.path.with_name(self.path.name.replace("notes", what))

    @contextmanager
    def call(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except AllocatorError as error:
            self.failed.write(f"{type(error).__name__}: {error}\n".encode())
        if (took := time.monotonic() - began) > self.longest:
            self.longest = took
            self.beside("longest").write_text(str(took))

    def draw(self, ids: Allocator) -> None:
        with self.call():
            self.tickets.write(ids.ticket("job").to_bytes(8, "little"))
        for _ in range(IDS_A_TICKET):
            with self.call():
                self.ids.write(ids.next_id("order").to_bytes(8, "little"))

    async def draw_async(self, ids: AsyncAllocator) -> NoReturn:
        while True:
            with self.call():
                self.tickets.write((await ids.ticket("job")).to_bytes(8, "little"))
            for _ in range(IDS_A_TICKET):
                with self.call():
                    self.ids.write((await ids.next_id("order")).to_bytes(8, "little"))


def draw_in_a_way(path: Path, number: int, list_of_urls: Path) -> None:
    """By the list of this moment, which later clients find longer: sync, by asyncio, and in a forked child as well."""
    notes, urls, parent = Notes(path), list_of_urls.read_text().split(), os.getpid()
    if number % 3 == 1:
        asyncio.run(draw_by_asyncio(notes, urls))
    ids = Allocator(shards=urls, timeout=PATIENCE)
    notes.draw(ids)
    if number % 3 == 2 and not os.fork():
        notes = Notes(path.with_name(f"{path.name}-child"))
        while os.getppid() == parent:
            notes.draw(ids)
        os._exit(0)
    while True:
        notes.draw(ids)


async def draw_by_asyncio(notes: Notes, urls: list[str]) -> None:
    async with AsyncAllocator(shards=urls, timeout=PATIENCE) as ids:
        await asyncio.gather(notes.draw_async(ids), notes.draw_async(ids))


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_millions_of_ids_while_clients_servers_and_commands_are_killed(kind, tmp_path, report, request):
    wanted = int(request.config.getoption("--ids"))
    rnd, urls, folder = random.Random(20261129), tmp_path / "urls", tmp_path / "drawn"
    servers_killed = 0
    with ExitStack() as stack:
        servers = [stack.enter_context(killable(kind)) for _ in KINDS]
        for server in servers:
            migrate(server.url)
        one = servers[0].url
        urls.write_text(one)
        crew = stack.enter_context(Crew(draw_in_a_way, folder, urls, count=CLIENTS, begun=8 * IDS_A_TICKET))
        crew.wait_until_all_have_begun()
        commands_killed = killed_once(rnd, "make", "--slots", "64", "--url", one)
        members = [named(one, word_of_row(one))]
        for slot, server in enumerate(servers[1:], 2):
            commands_killed += added_in_spite_of_kills(rnd, server.url, slot, members)
            members.append(named(server.url, row_of(server.url).word))
            urls.write_text(" ".join(members))
            for _ in range(CLIENTS // 3):
                crew.kill_one()
        server_at = time.monotonic() + KILL_SERVER
        with tqdm(total=wanted, desc=kind, unit="id") as bar:
            while bar.n < wanted or servers_killed < LEAST:
                bar.update(min(size_of(folder, "notes"), IDS_A_TICKET * size_of(folder, "tickets")) - bar.n)
                time.sleep(KILL_CLIENT)
                crew.kill_one()
                if time.monotonic() > server_at:
                    victim = rnd.choice(servers)
                    victim.kill()
                    time.sleep(AWAY)
                    victim.start()
                    servers_killed += 1
                    server_at = time.monotonic() + KILL_SERVER
    failed = [line for path in folder.glob("failed-*") for line in path.read_text().splitlines()]
    longest = max(float(path.read_text() or 0) for path in folder.glob("longest-*"))
    ids, tickets = (distinct(numbers(folder, what)) for what in ("notes", "tickets"))
    report(
        f"{kind}: a database became three under {CLIENTS} clients, sync, by asyncio and forked: {ids} ids and "
        f"{tickets} tickets, none twice; killed: {crew.killed} clients, {servers_killed} servers, {commands_killed} "
        f"commands; {len(failed)} calls failed, the longest took {longest:.2f} s of {PATIENCE:g}"
    )
    assert crew.ended == 0, crew.errors()
    assert commands_killed > 1
    assert longest <= PATIENCE + 1
    assert len(failed) <= tickets / 100, failed[:3]


def added_in_spite_of_kills(rnd: random.Random, new: str, slot: int, members: list[str]) -> int:
    """The slot is kept for this database, so the same is run again. Returns how many commands were killed."""
    kills, vouched = 0, []
    while not row_of(new).fleet:
        given = [word for url in members for word in ("--url", url)]
        kills += killed_once(rnd, "add", new, "--slot", str(slot), *vouched, *given, most=1.5 + kills / 2)
        vouched = ["--unused"]
    return kills


def size_of(folder: Path, what: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{what}-*")) // 8


def numbers(folder: Path, what: str) -> array.array:
    """Without the last bytes of a client that was killed while it wrote."""
    found: array.array = array.array("q")
    for path in folder.glob(f"{what}-*"):
        data = path.read_bytes()
        found.frombytes(data[: len(data) // 8 * 8])
    return found
