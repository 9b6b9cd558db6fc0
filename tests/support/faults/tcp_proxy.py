"""A TCP proxy between an allocator and its server: counts round trips, swallows, cuts."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from sqlalchemy import make_url

CONNECT_SECONDS = 30


class Wire:
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

    def carried(self, data: bytes, asking: bool) -> bytes:
        """What is passed on, for a subclass that changes it."""
        return data

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
            sink.sendall(self.carried(data, asking))

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

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


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
