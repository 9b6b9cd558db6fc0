"""A TCP proxy between an allocator and its server: counts round trips, swallows, cuts."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from sqlalchemy import make_url


class Wire:
    """Listens on loopback and passes everything on to the server of `url`.

    round_trips: how often a client spoke after the server had, since `reset`.
    refuse, accept: as a server that is down, and up again.
    deaf: what the server says is swallowed, so that a commit has happened and nobody knows.
    """

    def __init__(self, url: str) -> None:
        target = make_url(url)
        self._target = (target.host or "127.0.0.1", int(target.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._refusing = False
        self._sockets: list[socket.socket] = []
        self.round_trips = 0
        self.deaf = False
        self.said = threading.Event()
        port = self._listener.getsockname()[1]
        self.url = target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self._refusing:
                    hang_up(client)
                    continue
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            turn = Turn()
            for source, sink, asking in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, asking, turn), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, asking: bool, turn: Turn) -> None:
        while True:
            try:
                data = source.recv(65536)
                if not data:
                    break
                if asking and turn.answered:
                    self.round_trips += 1
                turn.answered = not asking
                if not asking and self.deaf:
                    self.said.set()
                    continue
                sink.sendall(data)
            except OSError:
                break
        for end in (source, sink):
            hang_up(end)

    def reset(self) -> None:
        self.round_trips = 0

    def cut(self) -> None:
        """Every connection breaks now; new ones are served."""
        for end in self._sockets:
            hang_up(end)
        self._sockets.clear()

    def refuse(self) -> None:
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        self._refusing = False

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Turn:
    """Who spoke last on one connection."""

    answered = True


def hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
