"""The servers of a service over HTTP, with failover: when one server fails, the call tries the next one.

A call begins with the server that served the last one. A retry after a lost answer draws other ids; those of the lost
answer are skipped. Each operation of a connection has a timeout, not the exchange as a whole.
"""

from __future__ import annotations

import json
import logging
import re
import selectors
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

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

Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""Not the default one, which may open a file for each look. There is no poll() on Windows."""
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

    def __init__(self, urls: list[str], token: str | None, timeout: float) -> None:
        if token is not None and not (isinstance(token, str) and re.fullmatch("[!-~]+", token)):
            raise InvalidSetting(
                "token must be printable ASCII characters without blanks; leave it out, or unset ALLOCATOR_TOKEN, if "
                "the service needs none"
            )
        if token and (overheard := ", ".join(filter(is_overheard, urls))):
            log.warning("the token is sent unencrypted to %s; use https://", overheard)
        self.shown = ", ".join(urls)
        self._servers = [Server(url) for url in urls]
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
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
        once: bool = False,
    ) -> T:
        """Send a request, to one server after another until one serves it. Raises the error of the last one.

        once: to one server alone, since what it says may not hold any more when another one reads it.
        read: converts the JSON of the answer; when it raises, the call discards the answer and tries the next server.
        """
        catch_up()
        if self._closed:
            raise AllocatorClosed
        end = monotonic() + PART_OF_TIMEOUT * (self._timeout if timeout is None else timeout)
        target = f"{path}?{urlencode(fields)}" if fields else path
        data = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"} if data else {}
        all_headers = {**self._authorization, **(headers or {}), **kind}
        order = [*range(self._first, len(self._servers)), *range(self._first)][: 1 if once else None]
        failure: AllocatorError = DatabaseUnavailable(f"no time was left for a request to {self.shown}")
        for tried, number in enumerate(order):
            if (left := end - monotonic()) <= 0:
                break
            server = self._servers[number]
            try:
                # A server that hangs leaves the others their share of the time.
                answer = server.answer(left / (len(order) - tried), method, target, data, all_headers)
                return converted(server.address, read, answer)
            except (DatabaseUnavailable, DatabaseRefused) as error:
                failure, self._first = error, (number + 1) % len(self._servers)
        raise failure

    def close(self) -> None:
        self._closed = True
        self.abandon()

    def abandon(self) -> None:
        """Close the kept connections; in the child of a fork its copies, which the parent does not notice."""
        for server in self._servers:
            server.close()


class Server:
    """A server, and the connections to it that wait for their next request."""

    def __init__(self, address: str) -> None:
        self.address = address
        parts = urlsplit(address)
        self._prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._connect: Callable[[], HTTPConnection] = partial(HTTPConnection, parts.netloc)
        if parts.scheme == "https":
            self._connect = partial(HTTPSConnection, parts.netloc, context=ssl.create_default_context())
        self._idle: list[tuple[HTTPConnection, float]] = []
        """Each with the time of its last use."""

    def answer(self, timeout: float, method: str, target: str, *content: Any) -> bytes:
        """Send a request, and return the body of its answer. Raises the error that the service raised.

        timeout: seconds for each operation on the connection.
        """
        request = method, self._prefix + target, *content
        try:
            status, body, retry_after = self._send(timeout, request)
        except ssl.SSLError as error:
            raise DatabaseRefused(
                f"TLS with {self.address} failed: {printable(error)}; if its certificate is self-signed, name the "
                "certificate file in the environment variable SSL_CERT_FILE"
            ) from error
        except (HTTPException, OSError) as error:
            trouble = f"{type(error).__name__}: {printable(error)}"
            raise DatabaseUnavailable(f"{self.address} did not answer: {trouble}") from error
        if status in {200, 201}:
            return body
        refused = refusal(self.address, status, body)
        if isinstance(refused, DatabaseUnavailable) and retry_after.isdecimal():
            refused.retry_after = min(float(retry_after), MAX_RETRY_AFTER)
        raise refused

    def _send(self, timeout: float, request: tuple[Any, ...]) -> tuple[int, bytes, str]:
        """If a kept connection ends before an answer came, its server has closed it: send once more, on a new one."""
        if kept := self._kept():
            with suppress(ConnectionError, ssl.SSLError):
                return self._exchange(kept, timeout, request)
        return self._exchange(self._connect(), timeout, request)

    def _exchange(self, connection: HTTPConnection, timeout: float, request: tuple[Any, ...]) -> tuple[int, bytes, str]:
        """The status, the body and Retry-After of the answer."""
        try:
            connection.timeout = timeout
            if connection.sock:
                connection.sock.settimeout(timeout)
            connection.request(*request)
            with connection.getresponse() as answer:
                body = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append((connection, monotonic()))
        return answer.status, body, answer.getheader("Retry-After", "")

    def _kept(self) -> HTTPConnection | None:
        """A connection on which nothing came since its last answer: neither the end, nor an answer to no request."""
        while self._idle:
            connection, used_at = self._idle.pop()
            if connection.sock and monotonic() - used_at < MAX_IDLE:
                with Selector() as received:
                    received.register(connection.sock, selectors.EVENT_READ)
                    if not received.select(0):
                        return connection
            connection.close()
        return None

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    __del__ = close


def converted(server: str, read: Callable[[Any], T], body: bytes) -> T:
    """What `read` makes of the JSON, unless it is the answer of another kind of server."""
    try:
        return read(json.loads(body))
    except (InvalidArgument, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DatabaseRefused(
            f"{server}: not a response of allocator serve: {printable(error)}; check the URL, and any proxy"
        ) from error


def refusal(server: str, status: int, body: bytes) -> AllocatorError:
    """The error that the service raised, whose name is in problem+json."""
    try:
        answer = json.loads(body)
        name, detail = str(answer["error"]), printable(answer["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if status in {401, 403}:
            return AccessDenied(f"{server} answered {status}")
        if status == 429:
            return TooManyRequests(f"{server}: a proxy limits the requests of this client")
        return DatabaseUnavailable(f"{server} answered {status}, not as allocator serve does; check the URL")
    kind = getattr(allocator.errors, name, None)
    if kind in FAILOVER_ERRORS or (kind is None and status == 503):
        return DatabaseUnavailable(f"{server} cannot serve now: {detail}")
    if isinstance(kind, type) and issubclass(kind, AllocatorError) and kind is not AllocatorError:
        return kind(detail)
    return DatabaseRefused(f"{server} answered {status}: {detail}")


def printable(value: object) -> str:
    """Text of a server, shortened and without control characters, for messages and logs."""
    text = str(value)[:MAX_DETAIL]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
