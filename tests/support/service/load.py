"""Clients of a service by the dozen, on connections that are kept alive, and a poller of its readiness.

Asyncio and raw HTTP, since the clients must leave the processor to the service.
"""

import array
import asyncio
import json
import random
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
PATIENCE = 15.0
PAUSE = 0.025
"""Seconds from an answer to the next request, on average."""
VISIT = range(20, 120)
"""Requests on one connection; then another one is opened, so that a new replica gets its share of the clients."""
WISHES = ("ids",) * 90 + ("ids?count=20",) * 7 + ("ids?count=500",) * 2 + ("segments?size=300",)
ALIVE = 0.1
APART = 0.5
"""Polls that fail within this of each other are one gap: another replica may have answered in between."""


class Connection:
    """Opened when it is first used, or used again after it broke."""

    def __init__(self, port: int) -> None:
        self._service = port
        self.port: int | None = None

    async def open(self, doomed: set[int]) -> None:
        """Its port leaves `doomed` as it connects, which no kill can come between."""
        found = socket.create_connection(("127.0.0.1", self._service))
        self.port = found.getsockname()[1]
        doomed.discard(self.port)
        self._reader, self._writer = await asyncio.open_connection(sock=found)

    async def ask(self, method: str, path: str) -> tuple[int, bytes]:
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            head = await self._reader.readuntil(b"\r\n\r\n")
            return int(head[9:12]), await self._reader.readexactly(int(LENGTH.search(head)[1]))

    def close(self) -> None:
        if self.port is not None:
            self._writer.close()
            self.port = None


class Load:
    """Draws ids, batches and segments of some tags until it is `over`.

    doomed: the ports of the connections that a killed replica held. Only there a request may fail, to be asked anew.
    segments: whether any are asked for. visit: requests on one connection.
    """

    def __init__(self, port: int, clients: int, tags: tuple[str, ...], visit: range = VISIT) -> None:
        self.port, self.clients, self.visit = port, clients, visit
        self.tags, self.ids = tags, {tag: array.array("q") for tag in tags}
        self.doomed: set[int] = set()
        self.over, self.segments = False, True
        self.requests = self.cut = 0
        self.longest = 0.0
        self.wrong: list[str] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self.client(random.Random(number)))

    async def client(self, rnd: random.Random) -> None:
        while not self.over:
            connection = Connection(self.port)
            for _ in range(rnd.choice(self.visit)):
                if self.over:
                    break
                await self.draw(connection, rnd.choice(self.tags), self.wish(rnd))
                await asyncio.sleep(rnd.uniform(0, 2 * PAUSE))
            connection.close()

    def wish(self, rnd: random.Random) -> str:
        wish = rnd.choice(WISHES)
        return wish if self.segments or not wish.startswith("segments") else "ids"

    async def draw(self, connection: Connection, tag: str, wish: str) -> None:
        """Takes as long as it takes until there is an answer, with the connection that broke and the one after it."""
        began = monotonic()
        while (answer := await self.answer(connection, f"/v1/tags/{tag}/{wish}")) is None:
            self.cut += 1
        self.requests += 1
        self.longest = max(self.longest, monotonic() - began)
        status, body = answer
        if status == 200:
            self.ids[tag].extend(numbers_of(body))
        else:
            self.wrong.append(f"{wish} at {began:.3f}, {monotonic() - began:.3f} s: {status} {body.decode()[:300]}")

    async def answer(self, connection: Connection, path: str) -> tuple[int, bytes] | None:
        """None where a killed replica can no longer answer; anything else that breaks is a status of 0."""
        try:
            if connection.port is None:
                await connection.open(self.doomed)
            return await connection.ask("POST", path)
        except (OSError, EOFError) as error:
            allowed = connection.port in self.doomed
            connection.close()
            return None if allowed else (0, repr(error).encode())

    def duplicates(self) -> int:
        return sum(one == other for drawn in self.ids.values() for one, other in pairwise(sorted(drawn)))


def numbers_of(body: bytes) -> Iterator[int]:
    """Of single ids and batches, and of segments as well."""
    told = json.loads(body)
    if "ids" in told:
        return map(int, told["ids"])
    return iter(range(int(told["start"]), int(told["stop"]), int(told["step"])))


@dataclass(frozen=True, slots=True)
class Poll:
    asked: float
    answered: float
    status: int


class Readiness:
    """Asks /readyz every tenth of a second, each time on a new connection, until it is `over`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.polls: list[Poll] = []
        self.over = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self.over:
                group.create_task(self.poll())
                await asyncio.sleep(ALIVE)

    async def poll(self) -> None:
        asked, status = monotonic(), 0
        connection = Connection(self.port)
        try:
            await connection.open(set())
            status, _ = await connection.ask("GET", "/readyz")
        except (OSError, EOFError):
            pass
        connection.close()
        self.polls.append(Poll(asked, monotonic(), status))

    def gaps(self, longest: float) -> list[tuple[float, float]]:
        """From when to when it was not ready, or took longer than that to say so."""
        found: list[tuple[float, float]] = []
        for poll in sorted(self.polls, key=lambda poll: poll.asked):
            if poll.status == 200 and poll.answered - poll.asked <= longest:
                continue
            began = found.pop()[0] if found and poll.asked - found[-1][1] < APART else poll.asked
            found.append((began, poll.answered))
        return found
