"""The service under load while its replicas are killed and its database is stopped."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.documents.pages import ROOT, blocks
from support.processes.children import stop
from support.processes.patience import until
from support.processes.prefork import listens
from support.servers.machines import Machine
from support.servers.throwaway import free_port
from support.service.load import Load, Readiness
from support.service.served import Served
from tqdm import tqdm

from allocator.database.store import Database
from allocator.service.token_administration import Tokens

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="connections are found in /proc")

SECONDS, CLIENTS, REPLICAS, EVERY = 60, 64, 3, 5
STOPPED = range(30, 40)
SPARED = range(STOPPED.start - EVERY + 1, STOPPED.stop + 1)
"""No replica is killed in these: one that starts without the database has nothing in memory."""
WITHOUT_SEGMENTS = range(STOPPED.start - 1, STOPPED.stop + 2)
"""Each is a claim, which no memory can serve; afterwards the service has its second to notice."""
TAGS = ("order", "invoice", "parcel", "message")
AT_ONCE = 1.0


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_killed_replicas_and_a_stopped_database_fail_no_request(place, report):
    """But for those on a connection that the killed replica had accepted, which are asked anew.

    The replicas share a socket, so that what waits in it is another one's. Two things are not
    asked of them: to lose one while the database is away (see `SPARED`), and to claim a segment then (see
    `WITHOUT_SEGMENTS`). The seconds are those of a machine that has nothing else to do.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as kept:
        run = Run(place[1], kept)
        try:
            asyncio.run(run.all())
        finally:
            log = "".join(replica.log() for replica in run.replicas)
            for replica in run.replicas:
                replica.close()

    load, gaps = run.load, run.readiness.gaps(AT_ONCE)
    longest_gap = max((end - begin for begin, end in gaps), default=0.0)
    report(
        f"{load.requests} requests of {CLIENTS} clients, {sum(map(len, load.ids.values()))} ids, "
        f"{len(run.kills)} kills of one of {REPLICAS} replicas, PostgreSQL away for {run.back - run.away:.1f} s: "
        f"{load.duplicates()} duplicates, {load.cut} requests cut by a kill and asked anew, {len(load.wrong)} failed, "
        f"the longest took {load.longest:.3f} s; not ready {len(gaps)} times, for {longest_gap:.3f} s at most"
    )
    none_twice(load.duplicates())
    assert not load.wrong, load.wrong[:5]
    assert load.longest <= AT_ONCE
    assert longest_gap <= AT_ONCE
    assert not [gap for gap in gaps if run.back + AT_ONCE < gap[1] and gap[0] < run.kill_after(run.back)]
    assert len(run.kills) == sum(second not in SPARED for second in range(EVERY, SECONDS, EVERY))
    assert "Traceback" not in log


@dataclass
class Run:
    """The minute, second by second."""

    database: Machine
    kept: socket.socket
    kills: list[float] = field(default_factory=list)
    away: float = 0.0
    back: float = 0.0

    def __post_init__(self) -> None:
        self.replicas = [self.start() for _ in range(REPLICAS)]
        port = self.kept.getsockname()[1]
        self.load, self.readiness = Load(port, CLIENTS, TAGS), Readiness(port)

    def start(self) -> Served:
        return Served(self.database.url, listener=self.kept)

    async def all(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.load.run())
            group.create_task(self.readiness.run())
            await self.seconds()
            self.load.over = self.readiness.over = True

    async def seconds(self) -> None:
        for second in tqdm(range(SECONDS), desc="load on the service", unit="s"):
            began = time.monotonic()
            self.load.segments = second not in WITHOUT_SEGMENTS
            if second == STOPPED.start:
                self.away = time.monotonic()
                await asyncio.to_thread(self.database.kill)
            if second == STOPPED.stop:
                await asyncio.to_thread(self.return_database)
            if second and second % EVERY == 0 and second not in SPARED:
                await self.kill_one()
            await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))

    def return_database(self) -> None:
        self.database.start()
        self.back = time.monotonic()

    async def kill_one(self) -> None:
        """The eldest; a new one starts.

        It is stopped first, so that what it holds at its end is known exactly.
        """
        victim = self.replicas.pop(0)
        process, port = victim.process.pid, self.load.port
        stop(process)
        self.load.doomed |= clients_of(process, port)
        os.kill(process, signal.SIGKILL)
        self.kills.append(time.monotonic())
        victim.close()
        self.replicas.append(await asyncio.to_thread(self.start))

    def kill_after(self, moment: float) -> float:
        return min((kill for kill in self.kills if kill > moment), default=float("inf"))


# -- processes


LISTENING = "0A"


def clients_of(process: int, port: int) -> set[int]:
    """The ports at the other ends of the connections to `port` that a process holds."""
    held = {str(opened.readlink()) for opened in Path(f"/proc/{process}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(there.rpartition(":")[2], 16)
        for _, here, there, state, *_, inode in (row[:10] for row in rows)
        if f"socket:[{inode}]" in held and int(here.rpartition(":")[2], 16) == port and state != LISTENING
    }


# -- two replicas behind nginx, as docs/service.md configures it, restarted in turn under load: no request fails


OF_NGINX, ROUNDS = 32, 3
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextmanager
def nginx(folder: Path, replicas: list[int], token: str) -> Iterator[int]:
    """The port of one with the configuration of the page, before services on these ports. It sends the token."""
    assert NGINX
    (page,) = [block.text for block in blocks(ROOT / "docs" / "service.md") if "upstream ids" in block.text]
    first, second = re.findall(r"127\.0\.0\.1:\d+", page)
    port = free_port()
    page = page.replace(first, f"127.0.0.1:{replicas[0]}").replace(second, f"127.0.0.1:{replicas[1]}")
    page = page.replace("server {\n", f"server {{\n    listen 127.0.0.1:{port};\n", 1)
    page = page.replace("proxy_pass", f'proxy_set_header Authorization "Bearer {token}"; proxy_pass')
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; user {os.environ.get('USER', 'root')};\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{page}}}\n"
    )
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as process:
        try:
            assert until(lambda: listens(port))
            yield port
        finally:
            process.terminate()


@pytest.mark.skipif(NGINX is None, reason="there is no nginx")
def test_replicas_behind_nginx_restart_in_turn_and_fail_no_request(tmp_path, report):
    url = f"sqlite:///{tmp_path}/ids.db"
    ports = [free_port(), free_port()]
    with closing(Database(url)) as database:
        database.upgrade_schema()
        token, _ = Tokens(database).create("proxy", verbs=("draw", "administer"), tags=("*",))

    def start(port: int) -> Served:
        return Served(url, options=("--port", str(port)), is_open=False)

    async def restarts(load: Load) -> int:
        restarted = 0
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            for place in [0, 1] * ROUNDS:
                seen = load.requests
                while load.requests < seen + 20 * OF_NGINX:  # the connections to the one that has started are kept
                    await asyncio.sleep(0.1)
                assert await asyncio.to_thread(replicas[place].stop) == 0
                replicas[place].close()
                replicas[place] = await asyncio.to_thread(start, ports[place])
                restarted += 1
            load.over = True
        return restarted

    replicas = [start(port) for port in ports]
    try:
        with nginx(tmp_path, ports, token) as port:
            load = Load(port, OF_NGINX, ("order", "invoice"))
            restarted = asyncio.run(restarts(load))
    finally:
        for replica in replicas:
            replica.close()

    report(
        f"{restarted} restarts of one of two replicas behind nginx: {load.requests} requests of {OF_NGINX} clients, "
        f"{len(load.wrong)} failed, {load.duplicates()} duplicates, the longest took {load.longest:.3f} s"
    )
    none_twice(load.duplicates())
    assert not load.wrong, load.wrong[:5]
