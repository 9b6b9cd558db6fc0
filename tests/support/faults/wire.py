"""A TCP proxy between an allocator and its server: counts round trips, swallows, cuts."""

from __future__ import annotations

import random
import socket
import sqlite3
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import make_url

from support.closing import Closing

CONNECT_SECONDS = 30


class Wire(Closing):
    """Listens on loopback and passes everything on to the server of `url`.

    round_trips: how often a client spoke after the server had, since `reset`.
    refuse, accept: as a server that is down, and up again.
    freeze, thaw: what both say is held back, and then passed on.
    deaf: what the server says is swallowed, so that a commit has happened and nobody knows.
    lead_to: another server behind the same address, as after a failover; without `cut`, for new connections alone.
    """

    def __init__(self, url: str) -> None:
        target = make_url(url)
        self._target = address_of(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._refusing = False
        self._sockets: set[socket.socket] = set()
        self.round_trips = 0
        self.deaf = False
        self._flows = threading.Event()
        self._flows.set()
        self.freeze, self.thaw = self._flows.clear, self._flows.set
        self.said = threading.Event()
        port = self._listener.getsockname()[1]
        self.url = target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                hang_up(client)
            else:
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        """On a thread of its own, since a server that is frozen accepts late."""
        try:
            server = socket.create_connection(self._target, CONNECT_SECONDS)
        except OSError:
            hang_up(client)
            return
        server.settimeout(None)
        self._sockets.update((client, server))
        if self._refusing:  # since a moment ago
            self.cut()
        turn = Turn()
        threading.Thread(target=self._pass_on, args=(server, client, False, turn), daemon=True).start()
        self._pass_on(client, server, True, turn)

    def _pass_on(self, source: socket.socket, sink: socket.socket, asking: bool, turn: Turn) -> None:
        while True:
            try:
                data = source.recv(65536)
                if not data:
                    break
                if asking and turn.answered:
                    self.round_trips += 1
                turn.answered = not asking
                self._flows.wait()
                self._hand_on(data, sink, asking, turn)
            except OSError:
                break
        for end in (source, sink):
            hang_up(end)
            self._sockets.discard(end)

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        """What one end said, to the other; an `OSError` ends the connection."""
        if not asking and self.deaf:
            self.said.set()
        else:
            sink.sendall(data)

    def reset(self) -> None:
        self.round_trips = 0

    def cut(self) -> None:
        """Every connection breaks now; new ones are served."""
        for end in list(self._sockets):
            hang_up(end)

    def refuse(self) -> None:
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        self._refusing = False

    def lead_to(self, url: str, *, cut: bool = True) -> None:
        self._target = address_of(url)
        if cut:
            self.cut()

    def close(self) -> None:
        self._listener.close()
        self.thaw()
        self.cut()


class Turn:
    """Who spoke last on one connection, and whether a commit is what it asked for."""

    answered = True
    commits = False


def address_of(url: str) -> tuple[str, int]:
    target = make_url(url)
    return target.host or "127.0.0.1", int(target.port or 0)


def hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


# -- counts what a client asks of its database, connecting included, on the wire or by SQLite's own trace


MYSQL_COMMANDS = {1: "quit", 3: "query", 14: "ping", 27: "set option"}
UNTYPED = {80877103: "TLS", 80877104: "GSS", 196608: "start"}
"""Of PostgreSQL: the messages before a login have no letter."""


class Asked:
    """The messages of one client, in order; those of a login are not among them."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, words: str) -> None:
        if not words.startswith("--"):  # of SQLite, what a statement does within
            self.messages.append(words)

    def __len__(self) -> int:
        return len(self.messages)


class CountingWire(Wire):
    """On the way to a server; one client at a time."""

    def __init__(self, url: str, asked: Asked) -> None:
        self._asked = asked
        self._rest = b""
        self._split = self._postgresql if url.startswith("postgres") else self._mysql
        super().__init__(url)
        if url.startswith(("mysql", "mariadb")):
            self.url += "?ssl_disabled=true"  # PyMySQL encrypts wherever the server can

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        if asking:
            self._rest += data
            while (length := self._split(self._rest)) and length <= len(self._rest):
                self._rest = self._rest[length:]
        super()._hand_on(data, sink, asking, turn)

    def _mysql(self, data: bytes) -> int:
        """The length of the first packet, noted if it is a command that waits for an answer."""
        if len(data) < 5:
            return 0
        length = int.from_bytes(data[:3], "little") + 4
        if length <= len(data) and data[3] == 0 and data[4] != 1:
            name = MYSQL_COMMANDS.get(data[4], str(data[4]))
            self._asked.messages.append(f"{name} {data[5:length].decode(errors='replace')}")
        return length

    def _postgresql(self, data: bytes) -> int:
        if len(data) < 5:
            return 0
        if data[0] == 0 and struct.unpack("!i", data[4:8])[0] in UNTYPED:
            return int(struct.unpack("!i", data[:4])[0])
        length = int(struct.unpack("!i", data[1:5])[0]) + 1
        if length <= len(data) and data[:1] in b"QPS":  # Query, Parse, and Sync, which ends what is asked at once
            words = data[5:length].strip(b"\0").decode(errors="replace")
            if data[:1] != b"S":
                self._words = words
            if data[:1] != b"P":
                self._asked.messages.append(f"query {self._words}")
        return length


@contextmanager
def counted(url: str) -> Iterator[tuple[str, Asked]]:
    """The URL to use in place of this one, and what is asked by it."""
    asked = Asked()
    if url.startswith("sqlite"):
        connect = sqlite3.dbapi2.connect

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(asked.add)
            return connection

        with patch.object(sqlite3.dbapi2, "connect", traced):
            yield url, asked
        return
    with CountingWire(url, asked) as wire:
        yield wire.url, asked


# -- a network that cannot be trusted, between workers and their server: late, cut in the middle, answers swallowed


COMMITTING = (b"UPDATE allocator_segment", b"COMMIT")
"""What a request holds whose answer is the answer to a commit."""

FAULTS = ("delay", "cut request", "cut answer", "swallow and cut", "swallow and hang")
HANG = 4.0
"""Seconds of silence; longer than the workers wait."""


class Proxy(Wire):
    """A `Wire` with a plan: of the messages that claim, one in `every` meets a fault, which one a seed says.

    Which message is the n-th is up to the processes: the seed repeats the plan, not the run.
    faults: how often each one has struck.
    """

    def __init__(self, url: str, seed: int, every: int = 40) -> None:
        self._rnd = random.Random(seed)
        self._every = every
        self._plan = threading.Lock()
        self.faults: Counter[str] = Counter()
        super().__init__(url)
        if make_url(url).get_driver_name() == "pymysql":  # which encrypts if it can, and then nothing can be told
            self.url = make_url(self.url).update_query_dict({"ssl_disabled": "true"}).render_as_string(False)

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        if asking:
            turn.commits = any(words in data for words in COMMITTING)
        fault = self._next(asking) if turn.commits else ""
        if not fault:
            sink.sendall(data)
        elif fault == "delay":
            time.sleep(self._rnd.expovariate(5))
            sink.sendall(data)
        else:
            if fault.startswith("cut"):
                sink.sendall(data[: len(data) // 2])
            elif fault.endswith("hang"):
                time.sleep(HANG)
            raise ConnectionError(fault)

    def _next(self, asking: bool) -> str:
        with self._plan:
            fault = self._rnd.choice(FAULTS) if self._rnd.randrange(self._every) == 0 else ""
            if not fault or (asking and fault not in {"delay", "cut request"}) or (not asking and "request" in fault):
                return ""
            self.faults[fault] += 1
            return fault
