"""The service beside a bare ASGI application on the same uvicorn: requests a second, and ids a second in batches.

    python benchmarks/service.py [ROUNDS]

Every server is a process of its own with one worker; one round asks each of them for a second, in rotated order, over
the same number of connections that are kept alive. Printed are medians, and ratios to the bare application with the
least and the greatest of all rounds. Then the same for a process that is a client of the service, beside one that has
a database of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from tqdm import tqdm

from allocator import Allocator

CONNECTIONS = 32
SECONDS = 1.0
WARM_UP = 0.3
CALLS = 2_000_000

BARE = """
import uvicorn
BODY = b'{"tag":"order","ids":["1234567"]}'
HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"),
           (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, port=PORT, lifespan="off", ws="none", access_log=False, server_header=False, log_level="warning",
            timeout_keep_alive=75)
"""


@dataclass
class Candidate:
    """A server, and the request that it is asked."""

    name: str
    port: int
    target: str
    ids: int = 1
    token: str = ""
    rates: list[float] = field(default_factory=list)

    def request(self) -> bytes:
        head = f"POST {self.target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept: */*\r\nUser-Agent: bench\r\n"
        token = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        return f"{head}{token}Content-Length: 0\r\n\r\n".encode()


class Client(asyncio.Protocol):
    """Asks again as soon as it was answered."""

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
    """Requests a second."""
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
        client.transport.close()  # type: ignore[attr-defined]
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


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare, open_, closed = free_port(), free_port(), free_port()
        program = [sys.executable, "-m", "allocator"]
        locked = f"sqlite:///{folder}/locked.db"
        create = [*program, "tokens", "create", "bench", "--url", locked]
        token = subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()
        serve = [*program, "serve", "--port"]
        processes = [
            start([sys.executable, "-c", BARE.replace("PORT", str(bare))], bare, folder),
            start([*serve, str(open_)], open_, folder, ALLOCATOR_DATABASE_URL=f"sqlite:///{folder}/open.db"),
            start([*serve, str(closed)], closed, folder, ALLOCATOR_DATABASE_URL=locked),
        ]
        ids = "/v1/sequences/order/ids"
        candidates = [
            Candidate("bare ASGI application", bare, ids),
            Candidate("one id a request", open_, ids),
            Candidate("one id a request, with a token", closed, ids, token=token),
            Candidate("one meteor id a request", open_, "/v1/meteor"),
            Candidate("one snowflake id a request", open_, "/v1/snowflake"),
            Candidate("one ObjectId a request", open_, "/v1/objectids"),
            Candidate("1000 ids a request", open_, f"{ids}?count=1000", 1000),
        ]
        try:
            measure(candidates, rounds)
            report(candidates)
            beside_a_database(f"http://127.0.0.1:{open_}", f"sqlite:///{folder}/own.db", rounds)
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
                process.wait(10)


def measure(candidates: list[Candidate], rounds: int) -> None:
    for number in tqdm(range(rounds), unit="round"):
        turn = number % len(candidates)
        for candidate in candidates[turn:] + candidates[:turn]:
            candidate.rates.append(run(ask(candidate, SECONDS)))


def beside_a_database(service: str, database: str, rounds: int) -> None:
    """`next_id` of a client, to the same call on a local database; CPU and waiting, with all claims in it."""
    found: dict[str, list[float]] = {service: [], database: []}
    with Allocator(service) as one, Allocator(database) as other:
        for ids in (one, other):
            time_calls(ids)  # grows the segments to what this rate needs
        for number in range(3 * rounds):
            for url, ids in [(service, one), (database, other)][:: 1 if number % 2 else -1]:
                found[url].append(time_calls(ids))
    ratios = [ours / theirs for ours, theirs in zip(found[service], found[database], strict=True)]
    print(
        f"\nnext_id of a client of the service: {1e9 * statistics.median(found[service]) / CALLS:.0f} ns, "
        f"{statistics.median(ratios):.2f} of the same on a database ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def time_calls(ids: Allocator) -> float:
    began = time.perf_counter()
    for _ in repeat(None, CALLS):
        ids.next_id("own")
    return time.perf_counter() - began


def run(work: object) -> float:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return float(runner.run(work))  # type: ignore[arg-type]


def report(candidates: list[Candidate]) -> None:
    base = candidates[0].rates
    print(f"{'':<32} {'requests/s':>11} {'ids/s':>12} {'ratio':>7}  least  most")
    for one in candidates:
        ratios = [rate / other for rate, other in zip(one.rates, base, strict=True)]
        median = statistics.median(one.rates)
        print(
            f"{one.name:<32} {median:>11,.0f} {median * one.ids:>12,.0f} {statistics.median(ratios):>7.2f}"
            f"  {min(ratios):>5.2f} {max(ratios):>5.2f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
