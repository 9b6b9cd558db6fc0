"""A server on loopback that answers each request with whatever bytes it was given."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from support.closing import Closing

Answers = Callable[[str], Iterable[bytes]]
"""From the first line of a request to the pieces of its answer."""


class Hostile(Closing):
    def __init__(self, answers: Answers = lambda asked: []) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.heads: list[list[tuple[str, str]]] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self.connections += 1
        with connection, suppress(OSError), connection.makefile("rb") as received:
            while line := received.readline():
                head = []
                while header := received.readline().decode().strip():
                    name, _, value = header.partition(":")
                    head.append((name.lower(), value.strip()))
                received.read(int(dict(head).get("content-length", 0)))
                self.heads.append(head)
                self.requests.append(line.decode().rpartition(" ")[0])
                for piece in self.answers(self.requests[-1]):
                    connection.sendall(piece)

    def says(self, body: object, status: object = 200) -> None:
        """To each request."""
        self.answers = lambda asked: [saying(body, f"{status} x")]

    def refuses(self, status: int, name: str, detail: str = "so it is") -> None:
        self.says({"error": name, "detail": detail}, status)

    def close(self) -> None:
        self._listening.close()


def saying(body: object, status: str = "200 OK", head: str = "") -> bytes:
    """A whole answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
