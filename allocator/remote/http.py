"""The servers of a service over HTTP, with failover: when one server fails, the call tries the next one.

A call begins with the server that was asked last. A retry after a lost answer draws other ids; those of the lost
answer are skipped.

Each exchange has one deadline. `http.client` restarts its timeout for every read and for every address of a host: a
server that sends its head byte by byte or never ends a chunk extension would block the caller for ever.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import allocator.errors
from allocator.errors import (
    AccessDenied,
    AllocatorClosed,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidSetting,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
    TooManyRequests,
)
from allocator.remote.service_address import is_overheard
from allocator.runtime.forks import catch_up
from allocator.runtime.thread_pool import Work

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
Kept = list[tuple[socket.socket, float]]
"""Connections that wait for the next request, and when each was used."""

log = logging.getLogger("allocator")

MAX_ANSWER = 1_000_000
"""Bytes of a head and a body. The longest answer is a page of 1000 tags, of at most 250 bytes each."""
MAX_KEPT = 8
"""Connections to a server: one for each thread of an allocator (`thread_pool.THREADS`)."""
MAX_IDLE = 10.0
"""Seconds. `allocator serve` closes a connection that is idle for 75, and proxies may do so sooner."""
MAX_DETAIL = 1000
"""Characters of a server's text that a message repeats; the rest is cut off."""
PART_OF_TIMEOUT = 0.9
"""The requests share this part of the timeout, so that the caller gets their error and not its own timeout."""

FAILOVER_ERRORS = (AllocatorClosed, DatabaseRefused, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of a single server, after which the call tries the next one. A later call may try this one again."""


class Servers:
    """The servers of a service. Thread-safe; connects with the first call."""

    def __init__(
        self,
        urls: list[str],
        token: str | None,
        timeout: float,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
            raise InvalidSetting("token must be a str of printable ASCII characters")
        if token is not None and not token.strip():
            raise InvalidSetting("token is empty; leave it out, or unset ALLOCATOR_TOKEN, if the service needs none")
        if token and (overheard := ", ".join(filter(is_overheard, urls))):
            log.warning("the token is sent unencrypted to %s; use https://", overheard)
        self.shown = ", ".join(urls)
        self._servers = [Server(url) for url in urls]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._more = headers
        self._timeout = timeout
        self._closed = False
        self._first = 0

    def request(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        *,
        read: Callable[[Any], T],
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> T:
        """Send a request, to one server after another until one serves it. Raises the error of the last one.

        read: converts the JSON of the answer; when it raises, the call discards the answer and tries the next server.
        """
        catch_up()
        if self._closed:
            raise AllocatorClosed
        end = monotonic() + PART_OF_TIMEOUT * (self._timeout if timeout is None else timeout)
        query = "&".join(f"{name}={quote(value)}" for name, value in (fields or {}).items())
        target = f"{path}?{query}" if query else path
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        request = method, target, data, {**self._further(), **self._headers, **(headers or {}), **kind}
        order = [*range(self._first, len(self._servers)), *range(self._first)]
        error: AllocatorError = DatabaseUnavailable(f"no time was left for a request to {self.shown}")
        for tried, number in enumerate(order):
            if (left := end - monotonic()) <= 0:
                break
            self._first, server = number, self._servers[number]
            try:
                # A server that hangs leaves the others their share of the time.
                answer = server.answer(monotonic() + left / (len(order) - tried), *request)
                return convert(server.address, read, answer)
            except (DatabaseUnavailable, DatabaseRefused) as failure:
                error = failure
        raise error

    def _further(self) -> Mapping[str, str]:
        """What `headers` returns for this request."""
        if self._more is None:
            return {}
        try:
            return {str(name): str(value) for name, value in self._more().items()}
        except Exception as error:
            raise InvalidSetting(f"headers must return a mapping, got {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._closed = True
        self.abandon()

    def abandon(self) -> None:
        """Close the kept connections; in the child of a fork its copies, which the parent does not notice."""
        for server in self._servers:
            close_all(server.kept)


class Server:
    """A server, and its connections that wait for the next request."""

    def __init__(self, address: str) -> None:
        self.address = address
        scheme, _, path = address.partition("://")
        parts = urlsplit(address)
        self._socket_path = path if scheme == "unix" else None
        self._prefix = "" if self._socket_path else quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._tls = ssl.create_default_context() if scheme == "https" else None
        self._usual_port = 443 if self._tls else 80
        self._host, self._port = parts.hostname or "localhost", parts.port or self._usual_port
        self.kept: Kept = []
        weakref.finalize(self, close_all, self.kept)

    def answer(self, end: float, *request: Any) -> Any:
        """Send a request, and return the JSON of its answer. Raises the error that the service raised."""
        try:
            status, content = self._exchange(end, *request)
        except ssl.SSLError as error:
            raise DatabaseRefused(
                f"TLS with {self.address} failed: {printable(error)}; if its certificate is self-signed, name the "
                "certificate file in the environment variable SSL_CERT_FILE"
            ) from error
        except (HTTPException, OSError) as error:
            trouble = f"{type(error).__name__}: {printable(error)}"
            raise DatabaseUnavailable(f"{self.address} did not answer: {trouble}") from error
        except ValueError as error:
            raise InvalidSetting(f"headers returned what HTTP refuses: {error}") from error
        return answer_of(self.address, status, content)

    def _exchange(self, end: float, *request: Any) -> tuple[int, bytes]:
        """Send a request, and receive the status and the body of its answer.

        If a kept connection ends before a byte came, its server has closed it: send once more, on a new one.
        """
        if kept := usable(self.kept):
            received = ResponseStream(kept, end)
            try:
                return self._exchange_on(received, *request)
            except (HTTPException, OSError):
                if received.size or monotonic() >= end:
                    raise
        return self._exchange_on(ResponseStream(self._connect(end), end), *request)

    def _exchange_on(self, received: ResponseStream, method: str, target: str, *request: Any) -> tuple[int, bytes]:
        sock = received.sock
        try:
            sock.settimeout(time_until(received.end))
            http = HTTPConnection(self._host, self._port)
            http.default_port, http.sock = self._usual_port, sock
            http.request(method, self._prefix + target, *request)
            with HTTPResponse(received) as answer:  # type: ignore[arg-type]  # it only calls `makefile`
                answer.begin()
                while answer.status < 200:  # an interim one, of which `begin` skips 100 alone
                    answer.headers = None  # type: ignore[assignment]
                    answer.begin()
                content = answer.read(MAX_ANSWER)  # without a number, a false Content-Length reserves memory
                if answer.length:
                    raise IncompleteRead(content, answer.length)
        except BaseException:
            sock.close()
            raise
        if answer.will_close or len(self.kept) >= MAX_KEPT:
            sock.close()
        else:
            self.kept.append((sock, monotonic()))
        return answer.status, content

    def _connect(self, end: float) -> socket.socket:
        """Connect to the first address that accepts."""
        found = self._look_up(end)
        for waiting in range(len(found), 0, -1):
            try:
                sock = connected(found[-waiting], waiting, end)
                break
            except OSError:
                if waiting == 1:
                    raise
        return self._tls.wrap_socket(sock, server_hostname=self._host) if self._tls else sock

    def _look_up(self, end: float) -> list[Any]:
        """Call `getaddrinfo`, which has no timeout, on a thread: it may outlive the exchange."""
        if self._socket_path:
            return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", self._socket_path)]
        work = Work(partial(socket.getaddrinfo, self._host, self._port, type=socket.SOCK_STREAM))
        try:
            threading.Thread(target=work.run, name="allocator", daemon=True).start()
        except RuntimeError:  # the thread limit is reached, or the interpreter is shutting down
            work.run()
        try:
            return work.result(time_until(end))
        except TimeoutError:
            raise TimeoutError(f"looking up {self._host} timed out") from None


class ResponseStream(RawIOBase):
    """What one exchange receives, until its deadline and up to a maximum size."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self.sock, self.end, self.size = sock, end, 0

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self.sock.settimeout(time_until(self.end))
        size = self.sock.recv_into(buffer)
        self.size += size
        if self.size > MAX_ANSWER:
            raise OSError(f"the answer is larger than {MAX_ANSWER} bytes")
        return size


def time_until(end: float) -> float:
    if (seconds := end - monotonic()) <= 0:
        raise TimeoutError("the answer is too slow")
    return seconds


def connected(found: Any, waiting: int, end: float) -> socket.socket:
    """Connect to one of the `waiting` addresses, in its share of the time: packets to IPv6 are often dropped."""
    family, kind, protocol, _, address = found
    sock = socket.socket(family, kind, protocol)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(time_until(end) / waiting)
        sock.connect(address)
        sock.settimeout(time_until(end))
    except BaseException:
        sock.close()
        raise
    return sock


def usable(kept: Kept) -> socket.socket | None:
    """Take the connection that was used last, as far as one may take a request."""
    with suppress(IndexError):  # another thread may take the last one
        while kept:
            sock, used = kept.pop()
            try:
                sock.settimeout(0)
                sock.recv(1)  # its end, or an answer that nobody asked for
            except (BlockingIOError, ssl.SSLWantReadError):
                if monotonic() - used < MAX_IDLE:
                    return sock
            except OSError:
                pass
            sock.close()
    return None


def close_all(kept: Kept) -> None:
    with suppress(IndexError):  # another thread may take the last one
        while kept:
            kept.pop()[0].close()


def convert(server: str, read: Callable[[Any], T], value: Any) -> T:
    """Call `read`, and refuse an answer of another kind of server."""
    try:
        return read(value)
    except (InvalidArgument, AttributeError, KeyError, TypeError) as error:
        raise DatabaseRefused(
            f"{server}: not a response of allocator serve: {printable(error)}; check the URL, and any proxy"
        ) from error


def answer_of(server: str, status: int, content: bytes) -> Any:
    """The JSON of an answer; raises the error that the service raised, whose name is in problem+json."""
    try:
        answer = json.loads(content)
        if status in {200, 201}:
            return answer
        name, detail = str(answer["error"]), printable(answer["detail"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if status in {401, 403}:
            raise AccessDenied(f"{server} answered {status}") from error
        if status == 429:
            raise TooManyRequests(f"{server}: a proxy limits the requests of this client; retry in a second") from error
        raise DatabaseUnavailable(f"{server} answered {status}, not as allocator serve does; check the URL") from error
    kind = getattr(allocator.errors, name, None)
    if kind in FAILOVER_ERRORS or (kind is None and status == 503):
        raise DatabaseUnavailable(f"{server} cannot serve now: {detail}")
    if isinstance(kind, type) and issubclass(kind, AllocatorError) and kind is not AllocatorError:
        raise kind(detail)
    raise DatabaseRefused(f"{server} answered {status}: {detail}")


def printable(value: object) -> str:
    """Text of a server, shortened and without control characters, for messages and logs."""
    text = str(value)[:MAX_DETAIL]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
