"""The service compared with a bare ASGI application on its server, and a client compared with direct database access.

Every server is a process with one worker. All get the same number of keep-alive connections.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from allocator import Allocator

from .calls import by_the_clock
from .rounds import Measure, Race

CONNECTIONS = 32
SECONDS = 1.0
WARM_UP = 0.2
CALLS = 500_000

BARE = """
BODY = b'{"tag":"order","ids":["1234567"]}'
HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"),
           (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
"""
BARE_SERVER = ("-m", "granian", "--interface", "asginl", "--http", "1", "--no-ws", "bare:app", "--port")


@dataclass
class Candidate:
    """A server and the request to send."""

    port: int
    target: str
    token: str = ""

    def request(self) -> bytes:
        head = f"POST {self.target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept: */*\r\nUser-Agent: bench\r\n"
        token = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        return f"{head}{token}Content-Length: 0\r\n\r\n".encode()


class Client(asyncio.Protocol):
    """Sends a request as soon as the last one is answered."""

    def __init__(self, request: bytes, counts: list[int]) -> None:
        self.request = request
        self.counts = counts
        self.pending = b""
        self.stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.pending += data
        end = self.pending.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.pending.find(b"content-length: ") + 16
        length = int(self.pending[at : self.pending.index(b"\r", at)])
        if len(self.pending) < end + 4 + length:
            return
        assert self.pending.startswith(b"HTTP/1.1 200"), self.pending
        self.counts[0] += 1
        self.pending = b""
        if not self.stopped:
            self.transport.write(self.request)  # type: ignore[attr-defined]


async def ask(candidate: Candidate, seconds: float) -> float:
    """Measure requests per second."""
    loop, counts = asyncio.get_running_loop(), [0]
    clients: list[Client] = []
    for _ in range(CONNECTIONS):
        _, client = await loop.create_connection(
            lambda: Client(candidate.request(), counts), "127.0.0.1", candidate.port
        )
        clients.append(client)
    await asyncio.sleep(WARM_UP)
    began, before = time.perf_counter(), counts[0]
    await asyncio.sleep(seconds)
    rate = (counts[0] - before) / (time.perf_counter() - began)
    for client in clients:
        client.stopped = True
        client.transport.close()
    return rate


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(command: list[str], port: int, folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **environment})
    for _ in range(200):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise SystemExit(f"no server on port {port}:\n{(folder / f'{port}.log').read_text()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(10)


def asking(candidate: Candidate, seconds: float) -> Measure:
    import uvloop

    def measure() -> float:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(ask(candidate, seconds))

    return measure


def calling(ids: Allocator) -> Measure:
    measure = by_the_clock(ids, "own", CALLS)
    for _ in range(4):
        measure()  # grows the segments to this rate
    return measure


@contextmanager
def races(quick: bool) -> Iterator[list[Race]]:
    seconds = SECONDS / 2 if quick else SECONDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "bare.py").write_text(BARE)
        bare, open_, closed = free_port(), free_port(), free_port()
        program = [sys.executable, "-m", "allocator"]
        locked = f"sqlite:///{folder}/locked.db"
        create = [*program, "tokens", "create", "bench", "--tags", "order", "--url", locked]
        token = subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()
        serve = [*program, "serve", "--port"]
        for process in (
            start([sys.executable, *BARE_SERVER, str(bare)], bare, folder),
            start([*serve, str(open_), "--open"], open_, folder, ALLOCATOR_DATABASE_URL=f"sqlite:///{folder}/open.db"),
            start([*serve, str(closed)], closed, folder, ALLOCATOR_DATABASE_URL=locked),
        ):
            stack.callback(stop, process)
        ids = "/v1/tags/order/ids"
        candidates = {
            "bare ASGI application": Candidate(bare, ids),
            "one id": Candidate(open_, ids),
            "one id, with a token": Candidate(closed, ids, token),
            "one meteor id": Candidate(open_, "/v1/meteor"),
            "one snowflake id": Candidate(open_, "/v1/snowflake"),
            "one ObjectId": Candidate(open_, "/v1/objectids"),
            "1000 ids": Candidate(open_, f"{ids}?count=1000"),
        }
        requests: dict[str, Measure] = {name: asking(one, seconds) for name, one in candidates.items()}
        calls = {
            "next_id on a database": calling(stack.enter_context(Allocator(f"sqlite:///{folder}/own.db"))),
            "next_id of a client": calling(stack.enter_context(Allocator(f"http://127.0.0.1:{open_}"))),
        }
        yield [Race("http", "requests/s", requests), Race("http, from memory", "ns", calls)]
