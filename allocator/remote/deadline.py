"""urllib3 with one deadline for a whole exchange, and a bound on all bytes of its answer.

urllib3's own time-out begins again with every piece that arrives, and for every address of a host. A server that
drips its head, repeats `100 Continue` or never ends the extension of a chunk would hold a caller for ever.
"""

from __future__ import annotations

import http.client
import socket
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes; enough for the settings of a hundred thousand tags."""


class Bounded(RawIOBase):
    """What a socket receives until its present time-out, counted from now, is over."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._end = monotonic() + (sock.gettimeout() or 0.0)
        self._raw = sock.makefile("rb", buffering=0)
        self._left = MAX_ANSWER

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        seconds = self._end - monotonic()
        if seconds <= 0:
            raise TimeoutError("the answer is too slow")
        self._sock.settimeout(seconds)
        size = self._raw.readinto(buffer)
        self._left -= size or 0
        if self._left < 0:
            raise OSError("the answer is too long")
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class Answer(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(Bounded(sock), *args, **options)  # type: ignore[arg-type]  # it only makes a file of it


def connected(host: str, port: int, end: float) -> socket.socket:
    """A connection to the first address of a host that accepts one; what is left of the time is its time-out."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    trouble: OSError = TimeoutError("the time was over before an address was tried")
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        if (left := end - monotonic()) <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(left / (len(found) - tried))
            sock.connect(address)
            sock.settimeout(max(0.001, end - monotonic()))
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    raise trouble


class Timely:
    """What both kinds of connection differ in from urllib3's."""

    timeout: float | None
    port: int
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        return connected(self._dns_host, self.port, monotonic() + (self.timeout or 0.0))


class Plain(Timely, HTTPConnection):
    response_class = Answer


class Encrypted(Timely, HTTPSConnection):
    response_class = Answer


class PlainPool(HTTPConnectionPool):
    ConnectionCls = Plain


class EncryptedPool(HTTPSConnectionPool):
    ConnectionCls = Encrypted


def new_pool(servers: int, connections: int) -> PoolManager:
    made = PoolManager(num_pools=max(10, servers), maxsize=connections)
    made.pool_classes_by_scheme = {"http": PlainPool, "https": EncryptedPool}
    return made
