"""A server that asks whoever connects for the password in clear, and keeps what it gets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

ENCRYPTED = (80877103, 80877104)
"""PostgreSQL's requests for TLS and GSSAPI."""
SALT = b"s" * 20


class Thief:
    """`visits` is how many connected, `heard` what they said when they were asked for the password."""

    def __init__(self, kind: str) -> None:
        self._ask = ask_postgres if kind == "postgres" else ask_mysql
        self._listening = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = self._listening.getsockname()[1]
        self.visits = 0
        self.heard: list[bytes] = []
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, suppress(OSError, EOFError):
                connection.settimeout(5)
                if not self.port:
                    return
                self.visits += 1
                self.heard.append(self._ask(connection))

    def close(self) -> None:
        port, self.port = self.port, 0
        socket.create_connection(("127.0.0.1", port)).close()
        self._thread.join()
        self._listening.close()


@contextmanager
def thief(kind: str) -> Iterator[Thief]:
    made = Thief(kind)
    try:
        yield made
    finally:
        made.close()


def read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := connection.recv(count - len(found))):
            raise EOFError
        found += more
    return found


def ask_postgres(connection: socket.socket) -> bytes:
    while True:
        size, code = struct.unpack("!II", read(connection, 8))
        if code not in ENCRYPTED:
            break
        connection.sendall(b"N")
    read(connection, size - 8)
    connection.sendall(struct.pack("!cII", b"R", 8, 3))
    _, size = struct.unpack("!cI", read(connection, 5))
    return read(connection, size - 4)


def ask_mysql(connection: socket.socket) -> bytes:
    greeting = b"\x0a9.0.0\0" + struct.pack("<I", 1) + SALT[:8] + b"\0"
    greeting += struct.pack("<HBHH", 0xA200, 45, 2, 0x0008) + bytes([21]) + bytes(10) + SALT[8:] + b"\0"
    send(connection, 0, greeting + b"mysql_native_password\0")
    packet(connection)
    send(connection, 2, b"\xfemysql_clear_password\0")
    return packet(connection)


def send(connection: socket.socket, number: int, words: bytes) -> None:
    connection.sendall(struct.pack("<I", len(words))[:3] + bytes([number]) + words)


def packet(connection: socket.socket) -> bytes:
    size = int.from_bytes(read(connection, 4)[:3], "little")
    return read(connection, size)
