"""Stops a process in the middle of what it says to a server: at any of its messages, whole or half."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from support.closing import Closing
from support.faults.wire import Turn, Wire

SECONDS = 30

CLIENT = """
import json, sys
from allocator.database.dialect import transaction
from allocator.database.verbs import segments
from allocator.database.store import Database
from allocator.schemes.tag import Tag

url, names = sys.argv[1], json.loads(sys.argv[2])
database = Database(url, timeout=30)
for name in names:
    database.open_segment(Tag(name), create=True)
database.run(segments.fetch, names[0])
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "one":
        found = {names[0]: database.claim_segment(names[0], 10, {})}
    else:
        with database.engine.connect() as connection, transaction(connection, database.dialect):
            connection.exec_driver_sql(f"UPDATE allocator_segment SET step = step + 1 WHERE tag = '{names[0]}'")
        found = {}
    print(json.dumps({name: [ids.start, ids.stop] for name, ids in found.items()}), flush=True)
"""


class Snare(Wire):
    """Between one client and its server. `set` it, and the client is stopped as it sends that message."""

    def __init__(self, url: str) -> None:
        self._left, self._half, self._victim = 0, False, 0
        self.shut = threading.Event()
        super().__init__(url)

    def set(self, victim: int, message: int, *, half: bool) -> None:
        """The `message`-th from now on, counted from 1; of it the server gets the first half only, or all."""
        self.shut.clear()
        self._left, self._half, self._victim = message, half, victim

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        if asking and self._left:
            self._left -= 1
            if not self._left:
                stop(self._victim)
                sink.sendall(data[: len(data) // 2] if self._half else data)
                self.shut.set()
                self.rest = (sink, data[len(data) // 2 :]) if self._half else None
                return
        super()._hand_on(data, sink, asking, turn)

    def release(self) -> None:
        if self.rest:
            self.rest[0].sendall(self.rest[1])
        os.kill(self._victim, signal.SIGCONT)


def stop(process: int) -> None:
    """Return when it is stopped, with all its threads."""
    os.kill(process, signal.SIGSTOP)
    while any(state(task) not in "TZX" for task in Path(f"/proc/{process}/task").iterdir()):
        time.sleep(0.001)


def state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(") ")[2][0]


class Client(Closing):
    """A process that claims when it is told."""

    def __init__(self, url: str, names: list[str]) -> None:
        words = [sys.executable, "-c", CLIENT, url, json.dumps(names)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def tell(self, what: str) -> None:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def claimed(self) -> dict[str, range]:
        """What the claim brought that it was told to make."""
        return {name: range(*ids) for name, ids in json.loads(self.process.stdout.readline()).items()}

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
