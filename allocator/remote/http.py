"""The servers of a service over HTTP, with failover: when one server fails, the call tries the next one.

A call begins with the server that was asked last. A retry after a lost answer draws other ids; those of the lost
answer are skipped. Each operation of a connection has a timeout, not the exchange as a whole.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

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

T = TypeVar("T")

log = logging.getLogger("allocator")

MAX_ANSWER = 1_000_000
"""Bytes of a body. The longest answer is a page of 1000 tags, of at most 250 bytes each."""
MAX_IDLE = 10.0
"""Seconds. `allocator serve` closes a connection that is idle for 75, and proxies may do so sooner."""
MAX_DETAIL = 1000
"""Characters of a server's text that a message repeats; the rest is cut off."""
MAX_RETRY_AFTER = 30.0
"""Seconds. A server that asks to be left alone for longer is asked again then."""
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
                answer = server.answer(left / (len(order) - tried), *request)
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
            server.kept = threading.local()


class Server:
    """A server, with one kept connection for each thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._parts = urlsplit(address)
        self._prefix = "" if self._parts.scheme == "unix" else quote(self._parts.path, safe="/%:@!$&'()*+,;=~")
        self._tls = ssl.create_default_context() if self._parts.scheme == "https" else None
        self.kept = threading.local()

    def answer(self, timeout: float, method: str, target: str, *content: Any) -> Any:
        """Send a request, and return the JSON of its answer. Raises the error that the service raised.

        timeout: seconds for each operation on the connection.
        """
        try:
            answer = self._exchange(timeout, method, self._prefix + target, *content)
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
        return answer_of(self.address, *answer)

    def _exchange(self, timeout: float, *request: Any) -> tuple[int, bytes, str]:
        """Send a request, and receive the status, the body and Retry-After of its answer.

        If a kept connection ends before an answer came, its server has closed it: send once more, on a new one.
        """
        kept: Connection | None = getattr(self.kept, "connection", None)
        if kept and kept.is_usable():
            with suppress(ConnectionError, ssl.SSLError):
                return kept.exchange(timeout, *request)
        self.kept.connection = fresh = Connection(self._parts, self._tls)
        return fresh.exchange(timeout, *request)


class Connection(HTTPConnection):
    """A connection that is kept for the next request, until an exchange on it fails."""

    def __init__(self, parts: SplitResult, tls: ssl.SSLContext | None) -> None:
        self.default_port = 443 if tls else 80
        super().__init__(parts.hostname or "localhost", parts.port or self.default_port)
        self._path, self._tls = parts.path if parts.scheme == "unix" else "", tls
        self._used_at = 0.0

    def connect(self) -> None:
        if self._path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
            return
        super().connect()
        if self._tls:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)

    def exchange(self, timeout: float, *request: Any) -> tuple[int, bytes, str]:
        try:
            self.timeout = timeout
            if self.sock:
                self.sock.settimeout(timeout)
            self.request(*request)
            with self.getresponse() as answer:
                content = answer.read(MAX_ANSWER + 1)
                if answer.length or len(content) > MAX_ANSWER:
                    raise HTTPException(f"the answer was cut off, or is larger than {MAX_ANSWER} bytes")
        except BaseException:
            self.close()
            raise
        self._used_at = monotonic()
        return answer.status, content, answer.getheader("Retry-After", "")

    def is_usable(self) -> bool:
        """Whether nothing came since the last answer: neither the end, nor an answer that nobody asked for."""
        if not self.sock or monotonic() - self._used_at >= MAX_IDLE:
            return False
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False

    def __del__(self) -> None:
        """Close the socket when its thread ends or its server is replaced."""
        self.close()


def convert(server: str, read: Callable[[Any], T], value: Any) -> T:
    """Call `read`, and refuse an answer of another kind of server."""
    try:
        return read(value)
    except (InvalidArgument, AttributeError, KeyError, TypeError) as error:
        raise DatabaseRefused(
            f"{server}: not a response of allocator serve: {printable(error)}; check the URL, and any proxy"
        ) from error


def answer_of(server: str, status: int, content: bytes, retry_after: str = "") -> Any:
    """The JSON of an answer; raises the error that the service raised, whose name is in problem+json."""
    try:
        return json_of(server, status, content)
    except DatabaseUnavailable as error:
        if retry_after.isdecimal():
            error.seconds = min(float(retry_after), MAX_RETRY_AFTER)
        raise


def json_of(server: str, status: int, content: bytes) -> Any:
    try:
        answer = json.loads(content)
        if status in {200, 201}:
            return answer
        name, detail = str(answer["error"]), printable(answer["detail"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if status in {401, 403}:
            raise AccessDenied(f"{server} answered {status}") from error
        if status == 429:
            raise TooManyRequests(f"{server}: a proxy limits the requests of this client") from error
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
