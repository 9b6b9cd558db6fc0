"""A database becomes a fleet of three under clients that draw: clients, servers and commands are killed."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
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

from allocator import Allocator
from allocator.database.store import Database
from allocator.schemes.slots import Shard

CLIENTS, PATIENCE = 8, 20.0
KILL_CLIENT, KILL_SERVER, AWAY, LEAST = 4.0, 20.0, 3.0, 3
"""Seconds between two kills, how long a server is away, and how many are killed at least."""


def draw(path: Path, number: int, list_of_urls: Path) -> NoReturn:
    """By the list of this moment, which later clients find longer: every third draws tickets, the others ids."""
    notes = Notes(path)
    with Allocator(shards=list_of_urls.read_text().split(), timeout=PATIENCE) as ids:
        call = partial(ids.ticket, "job") if number % 3 == 0 else partial(ids.next_id, "order")
        while True:
            with notes.call():
                notes.write(call())


@pytest.fixture(params=["sqlite", "mixed"])
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
    with Crew(draw, folder, urls, count=CLIENTS, begun=100 * RECORD.size) as crew:
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
                bar.update(sum(path.stat().st_size for path in folder.glob("notes-*")) // RECORD.size - bar.n)
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
    paths = [set(), set()]
    for path in folder.glob("notes-*"):
        paths[int(path.name.rpartition("-")[2]) % 3 == 0].add(path)
    told, tickets = map(drawn, paths)
    report(
        f"a database became three under {CLIENTS} clients: {told}; tickets: {tickets}; killed: {crew.killed} clients, "
        f"{servers_killed} servers, {commands_killed} commands"
    )
    none_twice(told.duplicates + tickets.duplicates)
    assert last == {1, 2, 3}, "a database is not used again"
    assert crew.ended == 0, crew.errors()
    assert commands_killed > 1
    assert max(told.longest, tickets.longest) <= PATIENCE + 1
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
