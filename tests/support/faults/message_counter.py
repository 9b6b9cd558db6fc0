"""Counts what a client asks of its database, connecting included, on the wire or by SQLite's own trace."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from support.faults.tcp_proxy import Wire

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

    def carried(self, data: bytes, asking: bool) -> bytes:
        if asking:
            self._rest += data
            while (length := self._split(self._rest)) and length <= len(self._rest):
                self._rest = self._rest[length:]
        return data

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
