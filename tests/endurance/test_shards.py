"""A database becomes a fleet of three under clients that draw: clients, servers and commands are killed."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NoReturn

import pytest
from support.distinct import none_twice
from support.processes.crew import Crew
from support.processes.notes import RECORD, Notes, drawn
from support.servers.available import KINDS
from support.servers.databases import with_schema
from support.servers.fleets import named
from support.servers.machine_images import killable
from support.servers.machines import Machine
from tqdm import tqdm

from allocator import Allocator, AsyncAllocator
from allocator.database.store import Database
from allocator.schemes.slots import Shard

CLIENTS, IDS_A_TICKET, PATIENCE = 8, 100, 20.0
KILL_CLIENT, KILL_SERVER, AWAY, LEAST = 4.0, 20.0, 3.0, 3
"""Seconds between two kills, how long a server is away, and how many are killed at least."""


class Client:
    """Draws a ticket, and then so many ids, again and again."""

    def __init__(self, path: Path) -> None:
        self.ids, self.tickets = Notes(path), Notes(path.with_name(path.name.replace("notes", "tickets")))

    def draw(self, ids: Allocator) -> None:
        with self.tickets.call():
            self.tickets.write(ids.ticket("job"))
        for _ in range(IDS_A_TICKET):
            with self.ids.call():
                self.ids.write(ids.next_id("order"))

    async def draw_async(self, ids: AsyncAllocator) -> NoReturn:
        while True:
            with self.tickets.call():
                self.tickets.write(await ids.ticket("job"))
            for _ in range(IDS_A_TICKET):
                with self.ids.call():
                    self.ids.write(await ids.next_id("order"))


def draw_in_a_way(path: Path, number: int, list_of_urls: Path) -> None:
    """By the list of this moment, which later clients find longer: sync, by asyncio, and in a forked child as well."""
    client, urls, parent = Client(path), list_of_urls.read_text().split(), os.getpid()
    if number % 3 == 1:
        asyncio.run(draw_by_asyncio(client, urls))
    ids = Allocator(shards=urls, timeout=PATIENCE)
    client.draw(ids)
    if number % 3 == 2 and not os.fork():
        client = Client(path.with_name(f"{path.name}-child"))
        while os.getppid() == parent:
            client.draw(ids)
        os._exit(0)
    while True:
        client.draw(ids)


async def draw_by_asyncio(client: Client, urls: list[str]) -> None:
    async with AsyncAllocator(shards=urls, timeout=PATIENCE) as ids:
        await asyncio.gather(client.draw_async(ids), client.draw_async(ids))


@pytest.fixture(params=["sqlite", "postgres", "mysql", "mixed"])
def three(
    request: pytest.FixtureRequest, new_database: Callable[[str], str]
) -> Iterator[tuple[list[str], list[Machine]]]:
    """The URLs of three databases, and their servers, which may be killed; SQLite has none."""
    with ExitStack() as stack:
        kinds = KINDS if request.param == "mixed" else [request.param] * 3
        servers = [stack.enter_context(killable(kind)) for kind in kinds if kind != "sqlite"]
        urls = [server.url for server in servers] or [new_database("sqlite") for _ in kinds]
        yield [with_schema(url) for url in urls], servers


def test_ids_are_unique_while_clients_servers_and_commands_are_killed(three, tmp_path, report, request):
    (one, *others), servers = three
    wanted = int(request.config.getoption("--ids"))
    rnd, urls, folder = random.Random(20261129), tmp_path / "urls", tmp_path / "drawn"
    servers_killed = 0
    urls.write_text(one)
    with Crew(draw_in_a_way, folder, urls, count=CLIENTS, begun=IDS_A_TICKET * RECORD.size) as crew:
        crew.wait_until_all_have_begun()
        commands_killed = done_in_spite_of_kills(rnd, one, "make", "--slots", "64", "--url", one)
        members = [named(one, row_of(one).word)]
        for slot, new in enumerate(others, 2):
            given = [word for url in members for word in ("--url", url)]
            commands_killed += done_in_spite_of_kills(rnd, new, "add", new, "--slot", str(slot), *given)
            members.append(named(new, row_of(new).word))
            urls.write_text(" ".join(members))
            for _ in range(CLIENTS // 3):
                crew.kill_one()
        server_at = time.monotonic() + KILL_SERVER
        with tqdm(total=wanted, desc=request.node.name, unit="id") as bar:
            while bar.n < wanted or servers_killed < LEAST * bool(servers):
                bar.update(min(size_of(folder, "notes"), IDS_A_TICKET * size_of(folder, "tickets")) - bar.n)
                time.sleep(KILL_CLIENT)
                crew.kill_one()
                if servers and time.monotonic() > server_at:
                    victim = rnd.choice(servers)
                    victim.kill()
                    time.sleep(AWAY)
                    victim.start()
                    servers_killed += 1
                    server_at = time.monotonic() + KILL_SERVER
    with Allocator(shards=members, timeout=PATIENCE) as ids:
        last = {ids.ticket("job") % 64 for _ in range(6)}
    told, tickets = drawn(folder.glob("notes-*")), drawn(folder.glob("tickets-*"))
    failed, longest = told.failed + tickets.failed, max(told.longest, tickets.longest)
    report(
        f"a database became three under {CLIENTS} clients, sync, by asyncio and forked: {told.ids} ids, "
        f"{tickets.ids} tickets, none twice; killed: {crew.killed} clients, {servers_killed} servers, "
        f"{commands_killed} commands; {failed.total()} calls failed, the longest took {longest:.2f} s of {PATIENCE:g}"
    )
    none_twice(told.duplicates + tickets.duplicates)
    assert last == {1, 2, 3}, "a database is not used again"
    assert crew.ended == 0, crew.errors()
    assert commands_killed > 1
    assert longest <= PATIENCE + 1
    assert told.failed.total() <= told.ids / 1_000, told.words
    assert tickets.failed.total() <= tickets.ids / 100, tickets.words


def row_of(url: str) -> Shard:
    with closing(Database(url)) as database:
        return database.read_row()


def done_in_spite_of_kills(rnd: random.Random, url: str, *words: str) -> int:
    """Kill the command at random moments until its database has a slot; whoever adds it again vouches for the slot.

    Returns how often it was killed.
    """
    kills, vouched = 0, []
    while not row_of(url).fleet:
        words_now = [*words[:1], *vouched, *words[1:]]
        command = subprocess.Popen(
            [sys.executable, "-m", "allocator", "shards", *words_now],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, errors = command.communicate(timeout=rnd.uniform(0.5, 1.5 + kills / 2))
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            kills += 1
            vouched = ["--unused"] * (words[0] == "add")
        else:
            assert command.returncode == 0, errors + said
    return kills


def size_of(folder: Path, what: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{what}-*")) // RECORD.size
