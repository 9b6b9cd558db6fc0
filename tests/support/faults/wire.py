"""A TCP proxy between an allocator and its server: counts round trips, swallows, cuts."""

from __future__ import annotations

import random
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import psycopg
import pymysql
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


# -- notes what a process asks of its database, after logins: at the driver, or by SQLite's own trace


@contextmanager
def counted(url: str) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(owner: Any, name: str, place: int) -> Any:
        """The words of each call: that many places behind the object."""
        call = getattr(owner, name)

        def noting(*given: Any, **more: Any) -> Any:
            words = given[place]
            asked.append(words.decode(errors="replace") if isinstance(words, bytes) else str(words))
            return call(*given, **more)

        return patch.object(owner, name, noting)

    def traced(*given: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*given, **more)
        connection.set_trace_callback(lambda words: None if words.startswith("--") else asked.append(words))
        return connection  # what begins so, a statement does within

    connect = sqlite3.dbapi2.connect
    with ExitStack() as stack:
        if url.startswith("sqlite"):
            stack.enter_context(patch.object(sqlite3.dbapi2, "connect", traced))
        elif url.startswith("postgres"):
            stack.enter_context(note(psycopg.Cursor, "execute", 1))
            stack.enter_context(note(psycopg.Connection, "_exec_command", 1))
        else:
            stack.enter_context(note(pymysql.Connection, "_execute_command", 2))
        yield asked


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
