"""urllib3 with one deadline for a whole exchange and a maximum size of its response.

urllib3 restarts its timeout for every chunk and for every address of a host. A server that sends its head byte by
byte, repeats `100 Continue` or never ends a chunk extension would block the caller for ever.
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

MAX_RESPONSE = 16 * 1024 * 1024
"""Bytes: the settings of about 100,000 tags."""


class BoundedReader(RawIOBase):
    """The bytes that a socket receives, with one deadline for all reads and a maximum size."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._end = monotonic() + (sock.gettimeout() or 0.0)
        self._raw = sock.makefile("rb", buffering=0)
        self._left = MAX_RESPONSE

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        seconds = self._end - monotonic()
        if seconds <= 0:
            raise TimeoutError("the response is too slow")
        self._sock.settimeout(seconds)
        size = self._raw.readinto(buffer)
        self._left -= size or 0
        if self._left < 0:
            raise OSError(f"the response is larger than {MAX_RESPONSE} bytes")
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        # The base class only calls `makefile`.
        super().__init__(BoundedReader(sock), *args, **options)  # type: ignore[arg-type]


def connect(host: str, port: int, end: float) -> socket.socket:
    """Connect to the first address of a host that accepts. The socket's timeout is the time left until `end`."""
    addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    trouble: OSError = TimeoutError("looking up the address took the whole timeout")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        if (left := end - monotonic()) <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # An address whose packets are dropped, as IPv6 often, leaves the others their share of the time.
            sock.settimeout(left / (len(addresses) - tried))
            sock.connect(address)
            # A timeout of 0 would make the socket non-blocking.
            sock.settimeout(max(0.001, end - monotonic()))
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    raise trouble


class WithDeadline:
    """Mixin for urllib3's connections: one timeout for all addresses of the host."""

    timeout: float | None
    port: int
    _dns_host: str

    def _new_conn(self) -> socket.socket:
        return connect(self._dns_host, self.port, monotonic() + (self.timeout or 0.0))


class Plain(WithDeadline, HTTPConnection):
    response_class = Response


class Encrypted(WithDeadline, HTTPSConnection):
    response_class = Response


class OnSocket(HTTPConnection):
    """On a Unix socket. The host is the hex of its path, since urllib3 lowers the case of hosts."""

    response_class = Response

    def _new_conn(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(self.timeout or 0.0)
            sock.connect(bytes.fromhex(self.host))
        except OSError:
            sock.close()
            raise
        return sock


class PlainPool(HTTPConnectionPool):
    ConnectionCls = Plain


class EncryptedPool(HTTPSConnectionPool):
    ConnectionCls = Encrypted


class SocketPool(HTTPConnectionPool):
    ConnectionCls = OnSocket


def new_pool(servers: int, connections: int) -> PoolManager:
    pool = PoolManager(num_pools=max(10, servers), maxsize=connections)
    pool.pool_classes_by_scheme = {"http": PlainPool, "https": EncryptedPool, "unix": SocketPool}
    pool.key_fn_by_scheme = {**pool.key_fn_by_scheme, "unix": pool.key_fn_by_scheme["http"]}
    return pool
