"""The real service as a process of its own, on a port of its own."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from sqlalchemy import create_engine, insert

from allocator.database.store import Database
from allocator.database.tables import segment
from allocator.schemes.tag import Tag
from allocator.service.token_administration import Tokens
from support.closing import Closing
from support.processes.patience import until

START_SECONDS = 120.0
"""It is ready before, or has ended, on any machine that runs the tests."""
LISTENING = re.compile(r"listening on (https?)://([^ \"]+):(\d+)")

SHARED = """
import os, socket
from allocator.cli import main
from allocator.service import http_server
http_server.listening = lambda host, port: socket.socket(fileno=int(os.environ["SHARED"]))
main()
"""


def of_an_operator() -> dict[str, str]:
    """The environment without the settings of the tests, which the service would call unknown."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ALLOCATOR_TEST_")}


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def ids(self) -> list[str]:
        return list(self.json["ids"])


class Served(Closing):
    """`allocator serve` with these options, from its first readiness to its end; `is_open` until a token is made.

    listener: that it shares with other replicas, so that a killed one takes only the connections that it accepted.
    """

    def __init__(
        self,
        *urls: str,
        options: tuple[str, ...] = (),
        ready: bool = True,
        is_open: bool = True,
        ca: str | None = None,
        cwd: Path | None = None,
        program: tuple[str, str] = ("-m", "allocator"),
        listener: socket.socket | None = None,
        **environment: str,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self._log = Path(self.folder.name) / "log"
        shared: tuple[int, ...] = ()
        if listener:
            program, shared = ("-c", SHARED), (listener.fileno(),)
            environment |= {"SHARED": str(listener.fileno())}
        command = [sys.executable, *program, "serve", "--port", "0", *options]
        if is_open and "--host" not in options:
            command.append("--open")
        for url in urls:
            command += ["--url", url]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=cwd or self.folder.name,
                env=of_an_operator() | environment,
                pass_fds=shared,
            )
        self.pool = urllib3.PoolManager(maxsize=16, ca_certs=ca)
        self.address = ""
        try:
            self._wait("/readyz" if ready else "/healthz")
        except BaseException:
            self.close()
            raise

    def _wait(self, path: str) -> None:
        if not until(lambda: self._answers(path), START_SECONDS, every=0.02, hopeless=self._has_ended):
            raise RuntimeError(f"the service does not answer:\n{self.log()}")

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def _answers(self, path: str) -> bool:
        """As it should, at the address that it has said."""
        found = LISTENING.search(self.log())
        if not found:
            return False
        scheme, host, port = found.groups()
        self.address = f"{scheme}://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        try:
            return self.ask("GET", path).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().splitlines()]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(
        self, method: str, path: str, *, token: str | None = None, json: Any = None, body: Any = None, **headers: str
    ) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        options = {"json": json} if json is not None else {"body": body}
        answer = self.pool.request(
            method, self.address + path, headers=sent, timeout=60.0, retries=False, redirect=False, **options
        )
        return Reply(answer.status, answer.headers, answer.data)

    def post(self, path: str, **options: Any) -> Reply:
        return self.ask("POST", path, **options)

    def get(self, path: str, **options: Any) -> Reply:
        return self.ask("GET", path, **options)

    def put(self, path: str, **options: Any) -> Reply:
        return self.ask("PUT", path, **options)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        self.pool.clear()
        if not self._has_ended():
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.folder.cleanup()


# -- A service that asks for tokens, before an embedded database, and the tokens that are made for it


class Guarded(Closing):
    """admin: the secret of a token that may do all. options: of the service; how: of `Served`.

    The database stays open beside the service, for tests that make and revoke tokens while it runs.
    """

    def __init__(self, folder: str, *options: str, admin: str = "admin", **how: Any) -> None:
        self.url = f"sqlite:///{folder}/ids.db"
        self.database = Database(self.url)
        self.database.upgrade_schema()
        self.tokens = Tokens(self.database)
        self.admin = self.make(admin, "draw", "read", "administer")
        self.service = Served(self.url, options=options, **how)

    def make(self, name: str, *verbs: str, tags: tuple[str, ...] = ("*",), **settings: object) -> str:
        """The secret of a new token, which may draw everything where nothing else is said."""
        return self.tokens.create(name, verbs=verbs or ("draw",), tags=tags, **settings)[0]  # type: ignore[arg-type]

    def close(self) -> None:
        self.service.close()
        self.database.close()


def fill(url: str, names: Iterable[str]) -> None:
    """Tags in one transaction, since each alone would be a write to the disk."""
    engine, tag = create_engine(url), Tag("any")
    row = {"step": tag.step, "max_step": tag.max_step, "id_limit": tag.limit}
    with engine.begin() as connection:
        rows = [row | {"tag": name, "max_value": number} for number, name in enumerate(names)]
        connection.execute(insert(segment), rows)
    engine.dispose()


# -- somebody at the console, without a browser: sends a token as the password of HTTP Basic


def basic(secret: str) -> str:
    """The Authorization header of a browser."""
    return "Basic " + b64encode(f"anybody:{secret}".encode()).decode()


class Seat:
    """secret: of the token; empty before a service that is open to this machine."""

    def __init__(self, service: Served, secret: str = "") -> None:
        self.service = service
        self.sent = {"Authorization": basic(secret)} if secret else {}

    def get(self, path: str, **headers: str) -> Reply:
        return self.service.get(path, **(self.sent | headers))

    def text(self, path: str, **headers: str) -> str:
        """A page as it is read, which must be there."""
        answer = self.get(path, **headers)
        assert answer.status == 200, answer.body
        return html.unescape(answer.body.decode())
