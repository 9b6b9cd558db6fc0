"""Clients of a service by the dozen, on connections that are kept alive.

Asyncio and raw HTTP, since the clients must leave the processor to the service.
"""

import array
import asyncio
import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from time import monotonic

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
PATIENCE = 15.0
PAUSE = 0.025
"""Seconds from an answer to the next request, on average."""
VISIT = range(20, 120)
"""Requests on one connection; then another one is opened, so that a new replica gets its share of the clients."""
WISHES = ("ids",) * 90 + ("ids?count=20",) * 7 + ("ids?count=500",) * 2 + ("segments?size=300",)


class Load:
    """Draws ids, batches and segments of some tags until it is `over`. visit: requests on one connection."""

    def __init__(self, port: int, clients: int, tags: tuple[str, ...], visit: range = VISIT) -> None:
        self.port, self.clients, self.visit = port, clients, visit
        self.tags, self.ids = tags, {tag: array.array("q") for tag in tags}
        self.over = False
        self.requests = 0
        self.longest = 0.0
        self.wrong: list[str] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self.client(random.Random(number)))

    async def client(self, rnd: random.Random) -> None:
        while not self.over:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                with closing(writer):
                    for _ in range(rnd.choice(self.visit)):
                        if self.over:
                            break
                        await self.draw(reader, writer, rnd.choice(self.tags), rnd.choice(WISHES))
                        await asyncio.sleep(rnd.uniform(0, 2 * PAUSE))
            except (OSError, EOFError) as error:
                self.wrong.append(repr(error))
                await asyncio.sleep(PAUSE)

    async def draw(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tag: str, wish: str) -> None:
        began = monotonic()
        writer.write(f"POST /v1/tags/{tag}/{wish} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(LENGTH.search(head)[1]))
        self.requests += 1
        self.longest = max(self.longest, monotonic() - began)
        if head[9:12] == b"200":
            self.ids[tag].extend(numbers_of(body))
        else:
            self.wrong.append(f"{wish}: {head[9:12].decode()} {body.decode()[:300]}")

    def duplicates(self) -> int:
        return sum(one == other for drawn in self.ids.values() for one, other in pairwise(sorted(drawn)))


def numbers_of(body: bytes) -> Iterator[int]:
    """Of single ids and batches, and of segments as well."""
    told = json.loads(body)
    if "ids" in told:
        return map(int, told["ids"])
    return iter(range(int(told["start"]), int(told["stop"]), int(told["step"])))
