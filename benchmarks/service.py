"""CPU of one request to the service, compared with a bare ASGI application on its server. By wrk, on Linux.

Each server is a process. All get the same number of keep-alive connections. CPU, since wrk shares the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from .places import Place
from .rounds import Figure, Measure, Race

CONNECTIONS = 32
SECONDS = 1

BARE = """
BODY = b'{"tag":"order","ids":["1234567"]}'
HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"),
           (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
"""
BARE_SERVER = ("-m", "granian", "--interface", "asginl", "--http", "1", "--no-ws", "bare:app", "--port")
HELLO, ONE, TOKEN = "bare ASGI application", "one id", "one id, with a token"
FIGURES = (
    Figure("one id over HTTP to a bare ASGI application, CPU", ONE, HELLO, "≤ 1.5"),
    Figure("one id over HTTP with a token, to a bare ASGI application, CPU", TOKEN, HELLO, "≤ 1.5"),
)


class Server:
    """A server process, until the end of the stack. The folder has the script of wrk."""

    def __init__(self, stack: ExitStack, folder: Path, *words: str, url: str = "") -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.script, log = folder / "post.lua", folder / f"{self.port}.log"
        with log.open("wb") as out:
            environment = {**os.environ, "ALLOCATOR_DATABASE_URL": url}
            command = [sys.executable, *words, str(self.port)]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=environment)
        stack.callback(self.stop)
        for _ in range(200):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise click.ClickException(f"no server on port {self.port}:\n{log.read_text()}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)

    def cpu(self) -> float:
        """Microseconds of CPU of the process and its children, which may do the work."""
        found, pids = 0, [self.process.pid]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += int((task / "schedstat").read_text().split()[0])
                pids += map(int, (task / "children").read_text().split())
        return found / 1000

    def asked(self, path: str, token: str = "") -> Measure:
        """Microseconds of CPU per request."""
        words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(self.script)]
        words += ["-H", f"Authorization: Bearer {token}"] if token else []
        words.append(f"http://127.0.0.1:{self.port}{path}")

        def measure() -> float:
            before = self.cpu()
            done = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            requests = re.search(r"(\d+) requests in", done)
            if not requests or "Non-2xx" in done:
                raise click.ClickException(done)
            return (self.cpu() - before) / int(requests[1])

        return measure


@contextmanager
def races(_: Place) -> Iterator[list[Race]]:
    if not shutil.which("wrk"):
        click.echo("left out: it needs wrk, such as from: apt install wrk", err=True)
        yield []
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "bare.py").write_text(BARE)
        (folder / "post.lua").write_text("wrk.method = 'POST'")
        locked, program = f"sqlite:///{folder}/locked.db", ("-m", "allocator")
        create = [sys.executable, *program, "tokens", "create", "bench", "--tags", "order", "--url", locked]
        token = subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()
        bare = Server(stack, folder, *BARE_SERVER)
        free = Server(stack, folder, *program, "serve", "--open", "--port", url=f"sqlite:///{folder}/open.db")
        closed = Server(stack, folder, *program, "serve", "--port", url=locked)
        ids = "/v1/tags/order/ids"
        requests = {
            HELLO: bare.asked(ids),
            ONE: free.asked(ids),
            TOKEN: closed.asked(ids, token),
            "1000 ids": free.asked(f"{ids}?count=1000"),
        }
        yield [Race("http", "us of CPU a request", requests, FIGURES)]
